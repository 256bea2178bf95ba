"""What compressed texts leave out since every session has it, by how such a text begins.

For ever as they are: texts that were stored with one need it, and a change needs another prefix. The end of one weighs
most: it has what every turn writes.
"""

from typing import Final

NEWEST: Final = "dexz2."
"""Texts are compressed with this one."""

DICTIONARIES: Final = {
    "dexz1.": (
        b'"tool_call_id":"","outcome":"success","tool_name":"","args":"{\\"","part_kind":"tool-return","part_kind":"tool-call",'
        b'"function_call_output","call_id":"call_","type":"function_call","status":"completed","additional_kwargs":{},'
        b'"response_metadata":{},"type":"human","type":"ai","tool_calls":[],"invalid_tool_calls":[],"usage_metadata":'
        b'"invocation_id":"e-","author":"user","actions":{"state_delta":{},"artifact_delta":{}},"content":{"parts":[{"text":"'
        b'"role":"assistant","content":[{"type":"output_text","annotations":[],"text":"","role":"user","type":"message",'
        b'{"version":1,"framework":"pydantic-ai-slim","framework_version":"2.","format":1,"next_part":,"root":{"messages":'
        b'{"\\u0001list":[[{"\\u0001part":1},{"\\u0001part":2}],[{"\\u0001part":3}]]},"turn":null}}'
        b'{"version":1,"record":{"version":1,"turn_number":,"call_number":0,"batch_number":0,"step_number":,"last_sequence":,'
        b'"window_bytes":,"note":null,"usage":{"requests":,"input_tokens":,"output_tokens":},"turn":{"turn_id":"turn-",'
        b'"number":,"message_sequence":,"message_text":"","settings":{},"batch":0,"open_calls":[],"open_questions":[],"calls":[],'
        b'"dropped_calls":0,"state_changed":false,"model_steps":0,"context_at_start":null},"context":null},"head":'
        b'{"version":1,"parts":{"":{"parts":[{"content":"","timestamp":"2026-","part_kind":"user-prompt"}],"instructions":null,'
        b'"kind":"request","run_id":"/turn-","conversation_id":"","metadata":null,"state":"complete"},{"parts":[{"content":"",'
        b'"id":null,"provider_name":null,"provider_details":null,"part_kind":"text"}],"usage":{"input_tokens":,'
        b'"cache_write_tokens":0,"cache_read_tokens":0,"output_tokens":,"input_audio_tokens":0,"cache_audio_read_tokens":0,'
        b'"output_audio_tokens":0,"details":{}},"model_name":"","timestamp":"2026-","kind":"response","provider_name":null,'
        b'"provider_url":null,"provider_details":null,"provider_response_id":null,"finish_reason":null,'
        b'{"version":1,"turn_id":"turn-","status":"completed","text":"","output":null,"error":null,"usage":{"requests":1,'
        b'{"version":1,"messages":[{"version":1,"sequence":,"turn_id":"turn-","saved_at":17,"message":{"role":"assistant",'
        b'"author":"","blocks":[{"kind":"text","text":" the and to of a in is that for you with it on are this be not '
        b"have "
    ),
    NEWEST: (
        b'"tool_call_id":"","outcome":"success","tool_name":"","args":"{\\"","part_kind":"tool-return","part_kind":"tool-call",'
        b'"function_call_output","call_id":"call_","type":"function_call","status":"completed","additional_kwargs":{},'
        b'"response_metadata":{},"type":"human","type":"ai","tool_calls":[],"invalid_tool_calls":[],"usage_metadata":'
        b'"invocation_id":"e-","author":"user","actions":{"state_delta":{},"artifact_delta":{}},"content":{"parts":[{"text":"'
        b'"role":"assistant","content":[{"type":"output_text","annotations":[],"text":"","role":"user","type":"message",'
        b" the and to of a in is that for you with it on are this be not have "
        b'{"version":1,"messages":[{"version":1,"parts":{"10":{"parts":[{"content":"","timestamp":"2026-'
        b'","part_kind":"user-prompt"}],"timestamp":"2026-","instructions":"","kind":"request","run_id":"/turn-'
        b'","conversation_id":"","state":"complete"},"10":"","10":{"parts":[{"content":{"\\u0001part":1},"part_kind":"text"}],'
        b'"usage":{"input_tokens":10,"output_tokens":10},"model_name":"","model_id":"","timestamp":"2026-'
        b'","kind":"response","run_id":"/turn-","conversation_id":"","state":"complete"}}}'
        b'{"version":1,"message_id":"","content":[{"kind":"text","text":""}],"digest":"","trace":{}}'
        b'{"turn_id":"turn-1","status":"completed","text":"","usage":{"requests":1,"input_tokens":'
        b'{"version":1,"sequence":1,"turn_id":"turn-1","saved_at":17,"message":{"role":"assistant","author":"","blocks":'
        b'[{"kind":"text","text":""}]}}'
        b'{"version":1,"sequence":1,"turn_id":"turn-1","saved_at":17,"message":{"role":"user","author":"","blocks":'
        b'[{"kind":"text","text":""}]}}'
        b'{"version":1,"framework":"pydantic-ai-slim","framework_version":"2.68.0","format":1,"next_part":1,'
        b'"root":{"messages":{"\\u0001list":[[{"\\u0001part":1},{"\\u0001part":2},{"\\u0001part":3}],[{"\\u0001part":1}]]},"turn":null}}}'
        b'"turn":{"turn_id":"turn-1","number":1,"message_sequence":1,"message_text":"'
        b'{"version":1,"record":{"turn_number":1,"step_number":1,"last_sequence":1,"window_bytes":1,"log_bytes":1,'
        b'"packed_share":0.3,"alone_share":0.6,"state_bytes":1,"replaced":{"0":1},"usage":{"requests":1,'
        b'"input_tokens":1,"output_tokens":1}},"head":{"version":1,'
    ),
}
"""Raw deflate with the dictionary, as base64."""

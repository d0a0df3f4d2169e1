/* The named limits on everything that comes from outside. A file or request beyond one of these
 * is refused with the limit in the message; none of them bounds a published model. */
#ifndef SMOE_BASE_LIMITS_H
#define SMOE_BASE_LIMITS_H

#define LIMIT_JSON_DEPTH               200          /* nesting in any JSON */
#define LIMIT_CONFIG_BYTES             (16u << 20)  /* config.json and other small JSON files */
#define LIMIT_TOKENIZER_BYTES          (256u << 20) /* tokenizer.json */
#define LIMIT_INDEX_BYTES              (256u << 20) /* model.safetensors.index.json */
#define LIMIT_SAFETENSORS_HEADER_BYTES (100000000u) /* the format's own limit */
#define LIMIT_VAULT_HEADER_BYTES       (1ull << 30)
#define LIMIT_GGUF_HEADER_BYTES        (1u << 30)
#define LIMIT_GGUF_KEYS                65536
#define LIMIT_GGUF_KEY_BYTES           65535 /* the format's own limit */
#define LIMIT_GGUF_TENSORS             (1 << 20)
#define LIMIT_GGUF_NAME_BYTES          127          /* of a tensor; ggml's own is 63 */
#define LIMIT_HEAT_BYTES               (16u << 20)  /* what earlier runs learned */
#define LIMIT_TRACE_BYTES              (4ull << 30) /* a recorded routing trace */
#define LIMIT_SHARDS                   4096         /* files of one model */
#define LIMIT_TENSOR_RANK              8
#define LIMIT_LAYERS                   1024
#define LIMIT_EXPERTS                  4096 /* of one layer */
#define LIMIT_HEADS                    4096
#define LIMIT_DIM                      (1 << 24) /* any width of the model */
#define LIMIT_VOCAB                    (1 << 24)
#define LIMIT_CONTEXT_TOK              (1 << 30)
#define LIMIT_PROMPT_BYTES             (1u << 30)
#define LIMIT_THREADS                  1024

#endif

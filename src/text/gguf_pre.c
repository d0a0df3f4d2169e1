/* The table of GGUF pre-tokenizers; see gguf_pre.h. The patterns are those of the published
 * tokenizer.json files, gathered from there and from the names that llama.cpp maps to them. */
#include "text/gguf_pre.h"

#include <stddef.h>
#include <string.h>

/* ---- pieces of patterns */

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SYMBOLS     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
#define SYMBOLS_O   " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|"
#define HEAD        "[^\\r\\n\\p{L}\\p{N}]?"
#define UPPER       "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define UPPER_K     "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define LOWER_K     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"

/* ---- whole patterns */

#define GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTION "|" HEAD "\\p{L}+|\\p{N}{1,3}|" SYMBOLS SPACES
#define QWEN2  CONTRACTION "|" HEAD "\\p{L}+|\\p{N}|" SYMBOLS SPACES
#define QWEN35                                                                                     \
    CONTRACTION "|" HEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES
#define O200K                                                                                      \
    HEAD UPPER "*" LOWER "+" CONTRACTION "?|" HEAD UPPER "+" LOWER "*" CONTRACTION                 \
               "?|\\p{N}{1,3}|" SYMBOLS_O SPACES
#define TEKKEN HEAD UPPER "*" LOWER "+|" HEAD UPPER "+" LOWER "*|\\p{N}|" SYMBOLS_O SPACES
#define KIMI_K2                                                                                    \
    "[\\p{Han}]+|" HEAD UPPER_K "*" LOWER_K "+" CONTRACTION "?|" HEAD UPPER_K "+" LOWER_K          \
    "*" CONTRACTION "?|\\p{N}{1,3}|" SYMBOLS SPACES
#define BAILING                                                                                    \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}|"                                 \
    " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define SEED_CODER CONTRACTION "|" HEAD "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES
#define MINICPM5   CONTRACTION "|" HEAD "\\p{L}+|\\p{N}+|" SYMBOLS SPACES
#define BLOOM      " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"
/* spaces in runs of powers of two, as jais-2 has them */
#define SPACES_JAIS2                                                                               \
    "\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|" \
    "\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"
/* Hangul, CJK punctuation, Bopomofo, Han and kana apart */
#define YOUTU_CJK                                                                                  \
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|"                                                   \
    "[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}"  \
    "\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|"                             \
    "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define YOUTU                                                                                      \
    HEAD UPPER "*" LOWER "+" CONTRACTION "?|" HEAD UPPER "+" LOWER "*" CONTRACTION                 \
               "?|\\p{N}|" SYMBOLS_O SPACES
/* digits in threes from the right */
#define AFMOE_DIGITS "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))"
#define AFMOE_ASIAN                                                                                \
    "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{3040}-\\x{309F}"                \
    "\\x{30A0}-\\x{30FF}\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{E7F}\\x{E80}-\\x{EFF}"  \
    "\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}"                 \
    "\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+"
#define PUNCTUATION "[\\p{P}\\$\\+<=>\\^~\\|`]+"
/* CJK as the first DeepSeek tokenizers see it */
#define DEEPSEEK_CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define DEEPSEEK_PUNCTUATION                                                                       \
    "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+"
#define DEEPSEEK3_CJK "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"                                       \
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES

static const char deepseek_letters[] =
    "\\s?["
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}-\\x{377}"
    "\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}"
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}"
    "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}"
    "\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}"
    "\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}"
    "\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}"
    "\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}"
    "\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}"
    "\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}"
    "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}-\\x{2184}"
    "\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}-\\x{2CF3}"
    "\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}"
    "\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}"
    "\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}"
    "\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"
    "\\x{1E900}-\\x{1E943}"
    "]+";

/* ---- names */

static const gguf_pre table[] = {
    {.names = " default ",
     .patterns = {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {.names = " llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
     .patterns = {LLAMA3},
     .ignore_merges = true,
     .add_bos = true},
    {.names = " dbrx smaug-bpe glm4 chatglm-bpe ", .patterns = {LLAMA3}},
    {.names = " qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez ",
     .patterns = {QWEN2},
     .is_nfc = true},
    {.names = " hunyuan grok-2 solar-open ", .patterns = {QWEN2}},
    {.names = " qwen35 ", .patterns = {QWEN35}, .is_nfc = true},
    {.names = " deepseek-llm ",
     .patterns = {"[\\r\\n]", deepseek_letters, DEEPSEEK_PUNCTUATION, "\\s+$", DEEPSEEK_CJK,
                  "\\p{N}+"}},
    {.names = " deepseek-coder ",
     .patterns = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"}},
    {.names = " deepseek-v3 hunyuan-dense joyai-llm hy_v4 ",
     .patterns = {"\\p{N}{1,3}", DEEPSEEK3_CJK, DEEPSEEK3}},
    {.names = " afmoe ", .patterns = {AFMOE_DIGITS, AFMOE_ASIAN, DEEPSEEK3}},
    {.names = " youtu ", .patterns = {YOUTU_CJK, YOUTU}, .ignore_merges = true},
    {.names = " jais-2 ",
     .patterns = {CONTRACTION "|" HEAD "\\p{L}+|\\p{N}{1,3}|" SYMBOLS SPACES_JAIS2}},
    {.names = " laguna ", .patterns = {"[^\\n]+|[\\n]+", QWEN2}},
    {.names = " superbpe ", .patterns = {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
    {.names = " tiny_aya cohere2moe ", .patterns = {"\\d{1,3}(?=(?:\\d{3})*(?!\\w))", O200K}},
    {.names = " granite-embed-multi-97m ", .patterns = {O200K}, .ignore_merges = true},
    {.names = " falcon ", .patterns = {PUNCTUATION, GPT2, "[0-9][0-9][0-9]"}},
    {.names = " starcoder refact command-r smollm codeshell exaone minerva-7b mellum2 ",
     .patterns = {"\\p{N}", GPT2}},
    {.names = " olmo ", .patterns = {GPT2}, .is_nfc = true},
    {.names = " gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum "
              "modern-bert mpt jais exaone4 trillion granite-docling ",
     .patterns = {GPT2}},
    {.names = " gpt-4o llama4 kanana2 talkie minimax-m2 ", .patterns = {O200K}},
    {.names = " tekken ", .patterns = {TEKKEN}, .ignore_merges = true, .add_bos = true},
    {.names = " kimi-k2 ", .patterns = {KIMI_K2}, .ignore_merges = true},
    {.names = " bailingmoe bailingmoe2 llada-moe ", .patterns = {BAILING}},
    {.names = " seed-coder ", .patterns = {SEED_CODER}},
    {.names = " poro-chat bloom gpt3-finnish ", .patterns = {BLOOM}},
    {.names = " viking ", .patterns = {BLOOM, "\\p{N}"}},
    {.names = " minicpm5 ", .patterns = {"\\p{N}{1,3}", MINICPM5}, .ignore_merges = true},
};

const gguf_pre *gguf_pre_by_name(const char *name) {
    name = name && *name ? name : "default";
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *at = table[i].names;
        for (const char *hit = strstr(at, name); hit; hit = strstr(hit + 1, name)) {
            if (hit > at && hit[-1] == ' ' && hit[n] == ' ' && !strchr(name, ' ')) {
                return &table[i];
            }
        }
    }
    return NULL;
}

const char *gguf_pre_kimi(void) {
    return KIMI_K2;
}

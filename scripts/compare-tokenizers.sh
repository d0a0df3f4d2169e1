#!/bin/sh
# Compares the tokenizers with the Rust library on random strings:
#     scripts/compare-tokenizers.sh [STRINGS [SEED [NAME...]]]      (default 100000 1, all six)
#
# Run on demand, not by the tests: it needs npm, and half a minute for each tokenizer. The reference
# is @anush008/tokenizers, pinned, which wraps tokenizers 0.22.2; the tokenizer.json files are those
# of fetch-tokenizers.sh. Ids and decoded text must be equal; the first differences are printed and
# belong into tests/data/text once mended.
set -eu

cd "$(dirname "$0")/.."
strings=${1:-100000}
seed=${2:-1}
if [ $# -gt 2 ]; then
    shift 2
else
    set -- qwen3 gptoss deepseek_v3 llama3 llama2 gemma3
fi
cache=${SMOE_CACHE:-.cache}
smoe=${SMOE_BIN:-build/smoe}
version=0.6.0
export SMOE_CACHE="$cache"

scripts/fetch-tokenizers.sh >/dev/null
npm install --silent --no-save --prefix "$cache/compare" "@anush008/tokenizers@$version"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=
for name; do
    NODE_PATH="$cache/compare/node_modules" node scripts/compare-tokenizers.js write \
        "$cache/tokenizers/$name/tokenizer.json" "$strings" "$seed" "$work"
    "$smoe" tokenize "$cache/tokenizers/$name" --jsonl --file "$work/texts.jsonl" >"$work/got.jsonl"
    printf '%s: ' "$name"
    node scripts/compare-tokenizers.js compare "$work" || bad="$bad $name"
done
[ -z "$bad" ] || { echo "differences:$bad"; exit 1; }

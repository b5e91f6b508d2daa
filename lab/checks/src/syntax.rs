//! Just enough of Rust's lexical grammar to read imports, attributes and function names.
//!
//! Comments vanish and literals become placeholders, so nothing written in prose or in a string is taken for code.

/// One token: an identifier, keyword or number; `::`; a single punctuation character; or [`LITERAL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    pub text: &'a str,
    /// Counted from 1.
    pub line: usize,
}

/// What stands for any string or character literal.
pub const LITERAL: &str = "\"\"";

/// Splits Rust source into tokens.
pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer {
        source,
        at: 0,
        line: 1,
    };
    std::iter::from_fn(|| lexer.next()).collect()
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let rest = self.rest();
            let first = rest.chars().next()?;
            let line = self.line;
            let text = if first.is_whitespace() {
                self.skip(first.len_utf8());
                continue;
            } else if rest.starts_with("//") {
                self.skip(rest.find('\n').unwrap_or(rest.len()));
                continue;
            } else if rest.starts_with("/*") {
                self.skip(block_comment(rest));
                continue;
            } else if first == '\'' {
                match character(rest) {
                    Some(length) => self.literal(length),
                    None => {
                        // A lifetime or a label: its name is no identifier of interest.
                        self.skip(1 + word(&rest[1..]));
                        continue;
                    }
                }
            } else if first == '"' {
                self.literal(string(rest))
            } else if is_word(first) {
                self.word_or_literal(rest)
            } else if rest.starts_with("::") {
                self.take(2)
            } else {
                self.take(first.len_utf8())
            };
            return Some(Token { text, line });
        }
    }

    /// Reads a word, which may turn out to be the prefix of a literal (`br#"`) or of a raw identifier (`r#fn`).
    fn word_or_literal(&mut self, rest: &'a str) -> &'a str {
        let length = word(rest);
        let (prefix, after) = rest.split_at(length);
        let hashes = after.len() - after.trim_start_matches('#').len();
        match prefix {
            "r" | "br" | "cr" if after[hashes..].starts_with('"') => {
                let body = &after[hashes + 1..];
                let close = format!("\"{}", "#".repeat(hashes));
                let end = body.find(&close).map_or(body.len(), |i| i + close.len());
                self.literal(length + hashes + 1 + end)
            }
            "b" | "c" if after.starts_with('"') => self.literal(length + string(after)),
            "b" if after.starts_with('\'') => self.literal(length + character(after).unwrap_or(1)),
            "r" if hashes == 1 && word(&after[1..]) > 0 => {
                self.skip(2);
                self.take(word(&after[1..]))
            }
            _ => self.take(length),
        }
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn skip(&mut self, length: usize) {
        self.take(length);
    }

    fn literal(&mut self, length: usize) -> &'a str {
        self.take(length);
        LITERAL
    }

    fn take(&mut self, length: usize) -> &'a str {
        let text = &self.rest()[..length];
        self.line += text.matches('\n').count();
        self.at += length;
        text
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn word(text: &str) -> usize {
    text.find(|c| !is_word(c)).unwrap_or(text.len())
}

/// The length of the block comment, nested ones included, that `text` begins with.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of the string literal that `text` begins with.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return i + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of the character literal that `text` begins with, or nothing if it is a lifetime or a label.
fn character(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    match chars.next()? {
        (_, '\\') => {
            chars.next()?;
            chars.find(|&(_, c)| c == '\'').map(|(i, _)| i + 1)
        }
        _ => chars.next().filter(|&(_, c)| c == '\'').map(|(i, _)| i + 1),
    }
}

/// The index just after the bracket that closes the one at `open`, whatever its kind.
pub fn after_group(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// One attribute, outer or inner.
#[derive(Debug, Clone, Copy)]
pub struct Attribute<'t, 'a> {
    /// What stands between the brackets.
    pub inside: &'t [Token<'a>],
    /// The line of its `#`.
    pub line: usize,
}

impl<'t, 'a> Attribute<'t, 'a> {
    /// The attribute that begins at index `at`, with the index just after it.
    pub fn at(tokens: &'t [Token<'a>], at: usize) -> Option<(Self, usize)> {
        let text = |i: usize| tokens.get(i).map(|t| t.text);
        if text(at) != Some("#") {
            return None;
        }
        let open = if text(at + 1) == Some("!") {
            at + 2
        } else {
            at + 1
        };
        if text(open) != Some("[") {
            return None;
        }
        let end = after_group(tokens, open);
        let attribute = Self {
            inside: &tokens[open + 1..(end - 1).max(open + 1)],
            line: tokens[at].line,
        };
        Some((attribute, end))
    }

    /// Whether it marks a test: `test`, `tokio::test(..)` or any other path that ends in `test`.
    pub fn marks_test(&self) -> bool {
        let path = self
            .inside
            .iter()
            .take_while(|t| t.text == "::" || t.text.starts_with(is_word));
        path.last().is_some_and(|t| t.text == "test")
    }
}

/// Every attribute of a file.
pub fn attributes<'t, 'a>(tokens: &'t [Token<'a>]) -> impl Iterator<Item = Attribute<'t, 'a>> {
    (0..tokens.len()).filter_map(|i| Attribute::at(tokens, i).map(|(a, _)| a))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokens(source).into_iter().map(|t| t.text).collect()
    }

    #[test]
    fn comments_vanish_and_literals_are_opaque() {
        let source = r##"
            // todo!()
            /* a /* nested */ todo!() */
            let a = "todo!() \" still"; let b = r#"a " b"#; let c = b"x"; let d = br"y\"; let e = c"z";
            end
        "##;
        let found = texts(source);
        assert!(!found.contains(&"todo"), "{found:?}");
        assert_eq!(found.iter().filter(|t| **t == LITERAL).count(), 5);
        assert_eq!(found.last(), Some(&"end"));
    }

    #[test]
    fn characters_are_told_from_lifetimes() {
        assert_eq!(
            texts(r"'\'' '\u{1F600}' 'é' b'\\' '\\' &'a str 'outer: loop"),
            [
                LITERAL, LITERAL, LITERAL, LITERAL, LITERAL, "&", "str", ":", "loop"
            ]
        );
    }

    #[test]
    fn raw_identifiers_and_paths_are_words() {
        assert_eq!(texts("r#fn::x_1 : r"), ["fn", "::", "x_1", ":", "r"]);
    }

    #[test]
    fn lines_count_through_literals_and_comments() {
        let source = "a\n\"x\ny\" b /* \n */ c";
        let lines: Vec<_> = tokens(source).iter().map(|t| (t.text, t.line)).collect();
        assert_eq!(lines, [("a", 1), (LITERAL, 2), ("b", 3), ("c", 4)]);
    }

    #[test]
    fn test_attributes_are_recognised_by_the_end_of_their_path() {
        let marks = |source: &str| {
            let tokens = tokens(source);
            Attribute::at(&tokens, 0).is_some_and(|(a, _)| a.marks_test())
        };
        assert!(marks("#[test]"));
        assert!(marks("#[tokio::test(start_paused = true)]"));
        assert!(!marks("#[cfg(test)]"));
        assert!(!marks("#[test_case(1)]"));
        assert!(!marks("# test"));
    }

    #[test]
    fn unfinished_source_is_read_to_its_end() {
        for source in ["\"open", "/* open", "r#\"open", "#[open", "'", "b'", "'\\"] {
            let tokens = tokens(source);
            assert!(attributes(&tokens).count() <= 1);
        }
    }
}

//! Comma-separated values, with the place of every field.
//!
//! RFC 4180 with either line ending. It exists because a person who has to mend a file needs the line and the column of
//! what is wrong in it.

/// A field and where it starts. Lines and columns count from 1; columns count characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub text: String,
    pub line: usize,
    pub column: usize,
}

/// What is wrong with the form of a file, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed {
    pub line: usize,
    pub column: usize,
    pub message: &'static str,
}

/// Splits a text into records. Empty lines are skipped.
pub fn records(text: &str) -> Records<'_> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Records {
        rest: text.chars().peekable(),
        line: 1,
        column: 1,
    }
}

#[derive(Debug)]
pub struct Records<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    line: usize,
    column: usize,
}

impl Iterator for Records<'_> {
    type Item = Result<Vec<Field>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        while self
            .rest
            .next_if(|c| matches!(c, '\r' | '\n'))
            .inspect(|&c| self.count(c))
            .is_some()
        {}
        self.rest.peek()?;
        let mut record = Vec::new();
        loop {
            let field = if self.rest.peek() == Some(&'"') {
                self.quoted()
            } else {
                self.plain()
            };
            match field {
                Ok(field) => record.push(field),
                Err(error) => {
                    // Nothing after this can be told apart, so it is the last item.
                    self.rest = "".chars().peekable();
                    return Some(Err(error));
                }
            }
            match self.bump() {
                Some(',') => {}
                Some('\r') if self.rest.peek() == Some(&'\n') => {
                    self.bump();
                    return Some(Ok(record));
                }
                _ => return Some(Ok(record)),
            }
        }
    }
}

impl Records<'_> {
    fn bump(&mut self) -> Option<char> {
        self.rest.next().inspect(|&c| self.count(c))
    }

    const fn count(&mut self, c: char) {
        if c == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
    }

    const fn malformed(&self, message: &'static str) -> Malformed {
        Malformed {
            line: self.line,
            column: self.column,
            message,
        }
    }

    fn plain(&mut self) -> Result<Field, Malformed> {
        let (line, column) = (self.line, self.column);
        let mut text = String::new();
        while let Some(&c) = self.rest.peek() {
            match c {
                ',' | '\n' | '\r' => break,
                '"' => {
                    return Err(self.malformed(
                        "a quotation mark inside an unquoted field; quote the whole field and double the mark",
                    ));
                }
                _ => text.extend(self.bump()),
            }
        }
        Ok(Field { text, line, column })
    }

    fn quoted(&mut self) -> Result<Field, Malformed> {
        let (line, column) = (self.line, self.column);
        let open = self.malformed("this quoted field is never closed");
        self.bump();
        let mut text = String::new();
        loop {
            match self.bump() {
                None => return Err(open),
                Some('"') if self.rest.peek() == Some(&'"') => text.extend(self.bump()),
                Some('"') => break,
                Some(c) => text.push(c),
            }
        }
        match self.rest.peek() {
            None | Some(',' | '\n' | '\r') => Ok(Field { text, line, column }),
            Some(_) => Err(self.malformed("text after the closing quotation mark; a comma or the end of the line belongs here")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<Vec<String>> {
        records(text)
            .map(|r| r.unwrap().into_iter().map(|f| f.text).collect())
            .collect()
    }

    #[test]
    fn splits_plain_and_quoted_fields() {
        assert_eq!(
            texts("a,b\r\n\"x, y\",\"say \"\"hi\"\"\"\n\n,\n"),
            [["a", "b"], ["x, y", "say \"hi\""], ["", ""]]
        );
    }

    #[test]
    fn a_field_knows_its_line_and_column_in_characters() {
        let all: Vec<_> = records("é,b\n\"two\nlines\",c")
            .map(Result::unwrap)
            .collect();
        assert_eq!((all[0][1].line, all[0][1].column), (1, 3));
        assert_eq!((all[1][0].line, all[1][0].column), (2, 1));
        assert_eq!((all[1][1].line, all[1][1].column), (3, 8));
    }

    #[test]
    fn broken_quotes_are_located() {
        let error = |text| {
            records(text)
                .find_map(Result::err)
                .map(|e| (e.line, e.column))
        };
        assert_eq!(error("a\nb,\"never"), Some((2, 3)));
        assert_eq!(error("a,b\"c"), Some((1, 4)));
        assert_eq!(error("\"a\"b"), Some((1, 4)));
    }

    #[test]
    fn an_empty_text_has_no_records() {
        assert_eq!(records("").count(), 0);
        assert_eq!(records("\u{feff}\r\n\n").count(), 0);
    }
}

//! Lines that no test executes, and why: `unexecuted.txt`.
//!
//! A reason stands at the beginning of a line and speaks for the lines below it, which are indented: file, function and the
//! line's own text, with tabs between them. So a line is found again after others have moved it; whoever changes it argues anew.
//! A reason that begins with `~` speaks for lines that some runs execute, as threads happen to meet.

use std::collections::BTreeMap;

/// A line as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub file: String,
    pub function: String,
    pub text: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\t{}\t{}", self.file, self.function, self.text)
    }
}

/// How often a line that is explained is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    Never,
    Sometimes,
}

/// Reads the list.
///
/// # Errors
/// A line has no reason above it, or not three parts.
pub fn parse(list: &str) -> Result<BTreeMap<Place, Executed>, String> {
    let mut places = BTreeMap::new();
    let mut executed = None;
    for line in list.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some(place) = line.strip_prefix('\t') else {
            executed = Some(match line.strip_prefix('~') {
                Some(_) => Executed::Sometimes,
                None => Executed::Never,
            });
            continue;
        };
        let mut parts = place.splitn(3, '\t').map(str::to_owned);
        let (Some(file), Some(function), Some(text), Some(executed)) =
            (parts.next(), parts.next(), parts.next(), executed)
        else {
            return Err(format!(
                "it takes a reason above, then file, function and text, each behind a tab: {line:?}"
            ));
        };
        let place = Place {
            file,
            function,
            text,
        };
        places.insert(place, executed);
    }
    Ok(places)
}

/// The place of a line (counted from one) of a source file.
pub fn place(file: &str, source: &str, number: usize) -> Place {
    let upto = source.lines().take(number);
    let function = upto
        .filter(|line| !line.trim_start().starts_with("//"))
        .filter_map(|line| line.split_once("fn "))
        .filter(|(before, _)| before.is_empty() || before.ends_with([' ', '(']))
        .filter_map(|(_, after)| after.split(['(', '<']).next())
        .filter(|name| !name.is_empty())
        .last();
    let text = source.lines().nth(number.wrapping_sub(1));
    Place {
        file: file.to_owned(),
        function: function.unwrap_or("-").to_owned(),
        text: text.unwrap_or_default().trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "struct A;\n\nimpl A {\n    // fn not_this\n    pub(crate) const fn left<T>(&self) -> T {\n        None\n    }\n}\n";

    #[test]
    fn a_line_is_named_by_its_function_and_its_text() {
        let place = |number| place("a.rs", SOURCE, number).to_string();
        assert_eq!(place(6), "a.rs\tleft\tNone");
        assert_eq!(place(1), "a.rs\t-\tstruct A;");
        assert_eq!(place(99), "a.rs\tleft\t");
    }

    #[test]
    fn a_reason_speaks_for_the_lines_below_it() {
        let list = "# Lines.\n\nNobody comes here.\n\ta.rs\tleft\tNone\n\tb.rs\tf\ta\tb\n~ A race.\n\tb.rs\tf\tc\n";
        let places = parse(list).unwrap();
        assert_eq!(places[&place("a.rs", SOURCE, 6)], Executed::Never);
        let executed: Vec<_> = places.iter().map(|(of, how)| (&*of.text, *how)).collect();
        let (never, sometimes) = (Executed::Never, Executed::Sometimes);
        assert_eq!(
            executed,
            [("None", never), ("a\tb", never), ("c", sometimes)]
        );
    }

    #[test]
    fn a_line_without_a_reason_or_a_part_is_refused() {
        assert!(parse("\ta.rs\tleft\tNone\n").is_err());
        assert!(parse("Because.\n\ta.rs\tleft\n").is_err());
    }
}

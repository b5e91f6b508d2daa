//! What a coverage tool says of each line, in the format of lcov.

use std::collections::BTreeMap;
use std::path::Path;

/// By file and line, how often it was executed.
pub type Lines = BTreeMap<String, BTreeMap<usize, u64>>;

/// Adds what `text` says. A line that two runs know was executed as often as in the one that knows better. Files are named
/// from `repository`.
///
/// # Errors
/// A line is not what the format says.
pub fn add(lines: &mut Lines, text: &str, repository: &Path) -> Result<(), String> {
    let mut file = None;
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let path = Path::new(path);
            let path = path.strip_prefix(repository).unwrap_or(path);
            file = Some(path.to_string_lossy().into_owned());
        } else if let Some(data) = line.strip_prefix("DA:") {
            let wrong = || format!("not a line of lcov: {line}");
            let mut numbers = data.split(',').map(str::parse::<u64>);
            let (Some(Ok(number)), Some(Ok(times))) = (numbers.next(), numbers.next()) else {
                return Err(wrong());
            };
            let file = file.clone().ok_or_else(wrong)?;
            let number = usize::try_from(number).map_err(|_| wrong())?;
            let known = lines.entry(file).or_default().entry(number).or_default();
            *known = times.max(*known);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_laid_over_each_other() {
        let mut lines = Lines::new();
        let here = Path::new("/here");
        add(
            &mut lines,
            "TN:\nSF:/here/a.rs\nDA:1,0\nDA:2,3\nend_of_record\nSF:b.rs\nDA:7,0\n",
            here,
        )
        .unwrap();
        add(&mut lines, "SF:/here/a.rs\nDA:1,2\nDA:2,0\n", here).unwrap();
        assert_eq!(lines["a.rs"], BTreeMap::from([(1, 2), (2, 3)]));
        assert_eq!(lines["b.rs"], BTreeMap::from([(7, 0)]));
    }

    #[test]
    fn what_is_not_lcov_is_named() {
        let mut lines = Lines::new();
        let here = Path::new("/here");
        for text in ["DA:1,1", "SF:a.rs\nDA:x,1", "SF:a.rs\nDA:1"] {
            let error = add(&mut lines, text, here).unwrap_err();
            assert!(error.starts_with("not a line of lcov: DA:"), "{error}");
        }
    }
}

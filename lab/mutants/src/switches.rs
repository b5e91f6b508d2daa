//! Puts all mutants of a file into it, each behind a switch.
//!
//! A switch asks which mutant is active, once for all that replace the same piece: an expression `a < b` becomes
//! `(match active(&[7, 8]) { 7 => a <= b, 8 => a == b, _ => a < b })`, and a function's body begins with
//! `match active(&[9]) { 9 => return None, _ => {} }`. Alternatives are made of the text as it was; only the last arm holds
//! switches in its turn. `const fn` becomes `fn`, since a constant cannot ask. Some iterator that a function returns is boxed,
//! so that a mutant's is of the same type.
//!
//! A switch names its mutants when it asks, so that a run without a mutant can note which of them it comes to.

use std::collections::BTreeMap;
use std::ops::Range;

use proc_macro2::{LineColumn, Span};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::list::{Genre, Mutant};

/// How a question begins.
pub const ASKS: &str = "crate::mutants_active(";

/// What a switch asks.
fn question(mutants: &[u32]) -> String {
    format!("{ASKS}&{mutants:?})")
}

/// Which mutant is active.
pub const ACTIVE: &str = "BURSAR_MUTANT";
/// A file to whose end the numbers of the mutants that are come to are written, four bytes each, once a process.
pub const REACHED: &str = "BURSAR_MUTANTS_REACHED";

/// The question's answer, and what boxes iterators, for the end of `lib.rs`. What the answer notes it notes without allocating:
/// some tests count that.
pub fn support(mutants: usize) -> String {
    format!(
        r#"
#[doc(hidden)]
#[inline]
pub fn mutants_active(asked: &[u32]) -> u32 {{
    static ACTIVE: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {{
        std::env::var("{ACTIVE}").map_or(0, |number| number.parse().unwrap_or(0))
    }});
    static REACHED: std::sync::LazyLock<Option<std::fs::File>> = std::sync::LazyLock::new(|| {{
        let path = std::env::var_os("{REACHED}")?;
        std::fs::OpenOptions::new().append(true).open(path).ok()
    }});
    if let Some(file) = &*REACHED {{
        use std::io::Write;
        use std::sync::atomic::{{AtomicBool, Ordering::Relaxed}};
        static MET: [AtomicBool; {mutants} + 1] = [const {{ AtomicBool::new(false) }}; {mutants} + 1];
        for number in asked {{
            if !MET[*number as usize].load(Relaxed) && !MET[*number as usize].swap(true, Relaxed) {{
                let _ = (&mut &*file).write_all(&number.to_le_bytes());
            }}
        }}
    }}
    *ACTIVE
}}

#[doc(hidden)]
pub fn mutants_boxed<'i, T>(of: impl Iterator<Item = T> + 'i) -> Box<dyn Iterator<Item = T> + 'i> {{
    Box::new(of)
}}
"#
    )
}

/// A file with its switches, and where in it each mutant's own text lies.
pub struct Switched {
    pub text: String,
    pub places: Vec<(Range<usize>, u32)>,
    /// Mutants for whose piece no switch is known.
    pub without: Vec<u32>,
}

/// Text to be put in at an offset of the original.
struct Insert {
    at: usize,
    /// Sorts those at one offset: what closes before what opens, then from the inside out, or from the outside in.
    order: (u8, usize),
    pieces: Vec<(String, Vec<u32>)>,
}

struct Finder<'f> {
    text: &'f str,
    lines: Vec<usize>,
    /// By genre's number, then by where they start.
    wanted: BTreeMap<(u8, usize), Vec<(u32, &'f str)>>,
    inserts: Vec<Insert>,
    erase: Vec<Range<usize>>,
}

const CLOSES: u8 = 0;
const OPENS: u8 = 1;

/// # Errors
/// The file is not Rust.
pub fn switch(text: &str, mutants: &[(u32, &Mutant)]) -> Result<Switched, String> {
    let file = syn::parse_file(text).map_err(|why| why.to_string())?;
    let starts = text.match_indices('\n').map(|(at, _)| at + 1);
    let mut finder = Finder {
        text,
        lines: std::iter::once(0).chain(starts).collect(),
        wanted: BTreeMap::new(),
        inserts: Vec::new(),
        erase: Vec::new(),
    };
    for (number, mutant) in mutants {
        let (line, column) = mutant.start;
        let at = finder.offset(LineColumn {
            line,
            column: column - 1,
        });
        let of = finder.wanted.entry((mutant.genre as u8, at)).or_default();
        of.push((*number, &mutant.replacement));
    }
    finder.visit_file(&file);
    Ok(finder.written())
}

impl<'f> Finder<'f> {
    fn offset(&self, at: LineColumn) -> usize {
        let line = self.lines[at.line - 1];
        let rest = self.text[line..].char_indices();
        rest.map(|(offset, _)| line + offset)
            .nth(at.column)
            .unwrap_or(self.text.len())
    }

    fn range(&self, span: Span) -> Range<usize> {
        self.offset(span.start())..self.offset(span.end())
    }

    fn source(&self, span: Span) -> &'f str {
        &self.text[self.range(span)]
    }

    fn take(&mut self, genre: Genre, at: usize) -> Vec<(u32, &'f str)> {
        self.wanted.remove(&(genre as u8, at)).unwrap_or_default()
    }

    /// Surrounds an expression by a switch.
    fn surround(&mut self, whole: Range<usize>, alternatives: Vec<(u32, String)>, before: &str) {
        let all: Vec<u32> = alternatives.iter().map(|of| of.0).collect();
        let question = question(&all);
        let mut pieces = vec![(format!("{before}(match {question} {{ "), all)];
        for (number, text) in alternatives {
            pieces.push((format!("{number} => {{ {text} }}, "), vec![number]));
        }
        pieces.push(("_ => { ".to_owned(), Vec::new()));
        self.inserts.push(Insert {
            at: whole.start,
            order: (OPENS, usize::MAX - whole.end),
            pieces,
        });
        self.inserts.push(Insert {
            at: whole.end,
            order: (CLOSES, usize::MAX - whole.start),
            pieces: vec![(" } })".to_owned(), Vec::new())],
        });
    }

    fn written(mut self) -> Switched {
        self.inserts.sort_by_key(|insert| (insert.at, insert.order));
        let (mut text, mut places) = (String::new(), Vec::new());
        let mut erase = self.erase.iter().peekable();
        let mut from = 0;
        let mut copy = |text: &mut String, from: usize, to: usize| {
            let mut from = from;
            while let Some(gone) = erase.next_if(|gone| gone.start < to) {
                text.push_str(&self.text[from..gone.start]);
                from = gone.end;
            }
            text.push_str(&self.text[from..to]);
        };
        for insert in &self.inserts {
            copy(&mut text, from, insert.at);
            from = insert.at;
            for (piece, numbers) in &insert.pieces {
                let start = text.len();
                text.push_str(piece);
                places.extend(numbers.iter().map(|number| (start..text.len(), *number)));
            }
        }
        copy(&mut text, from, self.text.len());
        let without = self.wanted.into_values().flatten().map(|of| of.0);
        Switched {
            text,
            places,
            without: without.collect(),
        }
    }

    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let (Some(first), Some(last)) = (block.stmts.first(), block.stmts.last()) else {
            return;
        };
        let at = self.range(first.span()).start;
        let bodies = self.take(Genre::Body, at);
        if bodies.is_empty() {
            return;
        }
        let all: Vec<u32> = bodies.iter().map(|of| of.0).collect();
        let question = question(&all);
        let mut pieces = vec![(format!("match {question} {{ "), all)];
        let (before, after) = match returns_some_iterator(signature) {
            true => ("crate::mutants_boxed(", ")"),
            false => ("", ""),
        };
        for (number, text) in bodies {
            let text = format!("{number} => return {before}{text}{after}, ");
            pieces.push((text, vec![number]));
        }
        pieces.push(("_ => {} } ".to_owned(), Vec::new()));
        self.inserts.push(Insert {
            at,
            order: (OPENS, 0),
            pieces,
        });
        let whole = self.range(last.span());
        let around = [
            (whole.start, (OPENS, 1), before),
            (whole.end, (CLOSES, usize::MAX), after),
        ];
        for (at, order, text) in around {
            self.inserts.push(Insert {
                at,
                order,
                pieces: vec![(text.to_owned(), Vec::new())],
            });
        }
    }

    fn never_constant(&mut self, signature: &syn::Signature) {
        if let Some(constant) = &signature.constness {
            self.erase.push(self.range(constant.span()));
        }
    }
}

/// Then what a mutant returns is of another type than what the function does, unless both are boxed.
fn returns_some_iterator(signature: &syn::Signature) -> bool {
    match &signature.output {
        syn::ReturnType::Type(_, of) => matches!(**of, syn::Type::ImplTrait(_)),
        syn::ReturnType::Default => false,
    }
}

fn holds_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(of) => holds_let(&of.left) || holds_let(&of.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, of: &'ast syn::ItemFn) {
        self.never_constant(&of.sig);
        self.body(&of.sig, &of.block);
        visit::visit_item_fn(self, of);
    }

    fn visit_impl_item_fn(&mut self, of: &'ast syn::ImplItemFn) {
        self.never_constant(&of.sig);
        self.body(&of.sig, &of.block);
        visit::visit_impl_item_fn(self, of);
    }

    fn visit_trait_item_fn(&mut self, of: &'ast syn::TraitItemFn) {
        if let Some(block) = &of.default {
            self.body(&of.sig, block);
        }
        visit::visit_trait_item_fn(self, of);
    }

    fn visit_expr_binary(&mut self, of: &'ast syn::ExprBinary) {
        let operator = self.range(of.op.span());
        let alternatives = self.take(Genre::Binary, operator.start);
        let (left, right) = (self.source(of.left.span()), self.source(of.right.span()));
        if !alternatives.is_empty() && !holds_let(&of.left) && !holds_let(&of.right) {
            let with = |(number, operator)| (number, format!("{left} {operator} {right}"));
            let alternatives = alternatives.into_iter().map(with).collect();
            self.surround(self.range(of.span()), alternatives, "");
        }
        visit::visit_expr_binary(self, of);
    }

    fn visit_expr_unary(&mut self, of: &'ast syn::ExprUnary) {
        let whole = self.range(of.span());
        let operand = self.source(of.expr.span());
        let alternatives = self.take(Genre::Unary, whole.start);
        if !alternatives.is_empty() {
            let without = |(number, _)| (number, operand.to_owned());
            let alternatives = alternatives.into_iter().map(without).collect();
            self.surround(whole, alternatives, "");
        }
        visit::visit_expr_unary(self, of);
    }

    fn visit_arm(&mut self, of: &'ast syn::Arm) {
        let start = self.range(of.span()).start;
        let deleted = self.take(Genre::Arm, start);
        if let Some((_, guard)) = &of.guard {
            let whole = self.range(guard.span());
            let mut alternatives: Vec<_> = self.take(Genre::Guard, whole.start);
            alternatives.extend(deleted.into_iter().map(|(number, _)| (number, "false")));
            if !alternatives.is_empty() {
                let same = |(number, text): (u32, &str)| (number, text.to_owned());
                let alternatives = alternatives.into_iter().map(same).collect();
                self.surround(whole, alternatives, "");
            }
        } else if let Some((number, _)) = deleted.first() {
            let at = self.range(of.fat_arrow_token.span()).start;
            let question = question(&[*number]);
            self.inserts.push(Insert {
                at,
                order: (OPENS, 0),
                pieces: vec![(format!("if {question} != {number} "), vec![*number])],
            });
        }
        visit::visit_arm(self, of);
    }

    fn visit_expr_struct(&mut self, of: &'ast syn::ExprStruct) {
        for field in &of.fields {
            let start = self.range(field.span()).start;
            let deleted = self.take(Genre::Field, start);
            let (Some(rest), Some((number, _))) = (&of.rest, deleted.first()) else {
                continue;
            };
            let (base, name) = (self.source(rest.span()), self.source(field.member.span()));
            let alternatives = vec![(*number, format!("({base}).{name}"))];
            let shorthand = field.colon_token.is_none();
            let before = if shorthand {
                format!("{name}: ")
            } else {
                String::new()
            };
            self.surround(self.range(field.expr.span()), alternatives, &before);
        }
        visit::visit_expr_struct(self, of);
    }
}

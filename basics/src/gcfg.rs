//! The INI dialect of the cloud configuration files of Go's providers: what Go's `gopkg.in/gcfg.v1` reads, which is git's format with a
//! few rules of its own.
//!
//! - `[section]` or `[section "subsection"]` on a line of its own. A repeated section is continued.
//! - `name = value`, or a `name` alone, which is "blank". Names of sections and variables are letters, digits
//!   and `-`, and begin with a letter. Their letter case does not matter; that of a subsection does.
//! - A value ends at the end of the line or at `;` or `#`. White space around it is dropped. A value, or
//!   parts of it, may be in double quotes, where `\"`, `\\`, `\n` and `\t` are escapes and `;` and `#` are
//!   ordinary.
//! - Outside of quotes, a backslash at the end of a line continues the value on the next line, and `\"` is a
//!   quote. A backslash before anything else is a fault. A line must not end inside of quotes.
//! - In the name of a subsection only `\"` and `\\` are escapes.
//!
//! The meaning of names is decided elsewhere. All faulty lines are reported, not only the first one. No
//! message contains any of the text.

/// A file: its sections in order. A repeated section is listed each time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// In the order of the file.
    pub sections: Vec<Section>,
}

/// A section's header and the variables below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// As written. Compare without regard to letter case.
    pub name: String,
    /// The quoted text after the name, unescaped.
    pub subsection: Option<String>,
    /// In the order of the file.
    pub variables: Vec<Variable>,
}

/// A line `name = value` or `name`.
#[derive(Clone, PartialEq, Eq)]
pub struct Variable {
    /// As written. Compare without regard to letter case.
    pub name: String,
    /// Unquoted and unescaped; `None` for a name alone.
    pub value: Option<String>,
    /// Whether a comment may have cut off a part of the value.
    pub cut: Cut,
}

/// Whether the comment sign after a value may have been meant as a part of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// There is no comment, or blanks are on both sides of its sign.
    No,
    /// The sign directly follows the value: `ab#cd`, `ab# cd`.
    Tight,
    /// Text directly follows the sign: `ab #cd`, `#cd`.
    Spaced,
}

impl std::fmt::Debug for Variable {
    /// Leaves the value out: it may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Variable").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A line that breaks the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// From 1.
    pub line: usize,
    /// What is wrong, as the end of a sentence that begins with the line.
    pub message: &'static str,
}

/// Reads a whole file. A byte order mark at its beginning is skipped.
///
/// # Errors
/// Every faulty line.
pub fn parse(text: &str) -> Result<Document, Vec<Fault>> {
    let mut scanner = Scanner { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 };
    let mut document = Document::default();
    let mut faults = Vec::new();
    let mut is_lost = false;
    loop {
        scanner.skip_white_space();
        let line = scanner.line;
        let outcome = match scanner.peek() {
            None => break,
            Some('\n' | ';' | '#') => Ok(()),
            Some('[') => scanner
                .header()
                .map(|section| {
                    is_lost = false;
                    document.sections.push(section);
                })
                .inspect_err(|_| is_lost = true),
            Some(c) if is_letter(c) => {
                scanner.variable().and_then(|variable| match document.sections.last_mut() {
                    Some(section) if !is_lost => {
                        section.variables.push(variable);
                        Ok(())
                    }
                    // The faulty header has been reported. The variables below it are not faults.
                    _ if is_lost => Ok(()),
                    _ => Err("stands before any [section]"),
                })
            }
            Some(c) if c.is_whitespace() => {
                Err("begins with a no-break space, or another blank that is none here; type it anew")
            }
            Some(_) => Err("is neither a [section] nor a name = value; a comment begins with # or ;"),
        };
        if let Err(message) = outcome.and_then(|()| scanner.end_of_line()) {
            faults.push(Fault { line, message });
            scanner.skip_line();
        }
    }
    if faults.is_empty() { Ok(document) } else { Err(faults) }
}

/// What gcfg treats as white space within a line.
fn is_white_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphabetic() || !c.is_ascii() && c.is_alphabetic()
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit() || !c.is_ascii() && c.is_numeric()
}

type Outcome<T> = Result<T, &'static str>;

struct Scanner<'a> {
    rest: &'a str,
    line: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        self.rest = self.rest.trim_start_matches(wanted);
    }

    fn skip_white_space(&mut self) {
        self.skip_while(is_white_space);
    }

    fn skip_line(&mut self) {
        self.skip_while(|c| c != '\n');
        self.next();
    }

    /// Reads a comment, if any, and the end of the line.
    fn end_of_line(&mut self) -> Outcome<()> {
        self.skip_white_space();
        if matches!(self.peek(), Some(';' | '#')) {
            let before = self.rest;
            self.skip_while(|c| c != '\n');
            if before[..before.len() - self.rest.len()].contains('\0') {
                return Err("holds a NUL character");
            }
        }
        match self.peek() {
            None => Ok(()),
            Some('\n') => {
                self.next();
                Ok(())
            }
            Some(_) => {
                Err("goes on where the line must end; a section and each variable need a line of their own")
            }
        }
    }

    fn name(&mut self) -> String {
        let before = self.rest;
        self.skip_while(|c| is_letter(c) || is_digit(c) || c == '-');
        before[..before.len() - self.rest.len()].to_owned()
    }

    fn header(&mut self) -> Outcome<Section> {
        self.next();
        self.skip_white_space();
        if !self.peek().is_some_and(is_letter) {
            return Err("has no name of a section behind the [");
        }
        let name = self.name();
        self.skip_white_space();
        let subsection = match self.peek() {
            Some('"') => {
                self.next();
                let subsection = self.subsection()?;
                if subsection.is_empty() {
                    return Err("has an empty name in quotes");
                }
                self.skip_white_space();
                Some(subsection)
            }
            _ => None,
        };
        match (self.peek(), &subsection) {
            (Some(']'), _) => {
                self.next();
                Ok(Section { name, subsection, variables: Vec::new() })
            }
            (Some('\u{2018}'..='\u{201f}' | '\u{ab}' | '\u{bb}'), None) => {
                Err("has a name in typographic quotes; write straight ones (\")")
            }
            (_, Some(_)) => Err("lacks the ] behind the name in quotes"),
            (_, None) => Err("lacks the ], or the name behind the section is not in double quotes"),
        }
    }

    /// Reads the rest of a subsection's name, after its opening quote.
    fn subsection(&mut self) -> Outcome<String> {
        const OPEN: &str = "has a name whose double quote is not closed";
        let mut name = String::new();
        loop {
            match self.peek().ok_or(OPEN)? {
                '\n' => return Err(OPEN),
                '"' => {
                    self.next();
                    return Ok(name);
                }
                '\0' => return Err("holds a NUL character"),
                '\\' => {
                    self.next();
                    match self.peek() {
                        Some(c @ ('"' | '\\')) => {
                            self.next();
                            name.push(c);
                        }
                        _ => return Err("has a name with an escape other than \\\" and \\\\"),
                    }
                }
                c => {
                    self.next();
                    name.push(c);
                }
            }
        }
    }

    fn variable(&mut self) -> Outcome<Variable> {
        let name = self.name();
        self.skip_white_space();
        match self.peek() {
            None | Some('\n' | ';' | '#') => Ok(Variable { name, value: None, cut: Cut::No }),
            Some('=') => {
                self.next();
                self.skip_white_space();
                let (value, cut) = self.value()?;
                Ok(Variable { name, value: Some(value), cut })
            }
            Some(c) if c.is_whitespace() => {
                Err("has a no-break space, or another blank that is none here, behind the name; type it anew")
            }
            Some('_') => Err("has a _ in a name; names of variables have - instead"),
            Some(':') => Err("has a : behind a name; write name = value"),
            Some(_) => Err("has no = behind the name"),
        }
    }

    /// Reads a value up to the end of the line or a comment, and tells whether a comment cut it.
    fn value(&mut self) -> Outcome<(String, Cut)> {
        const OPEN: &str = "has a double quote that is not closed on the same line";
        let mut value = String::new();
        // the length of the value without trailing unquoted white space
        let mut length = 0;
        let mut is_quoted = false;
        let mut has_return = false;
        loop {
            let c = match self.peek() {
                None | Some('\n') if is_quoted => return Err(OPEN),
                None | Some('\n') => break,
                Some(';' | '#') if !is_quoted => break,
                Some('\0') => return Err("holds a NUL character"),
                Some(c) => c,
            };
            self.next();
            match c {
                '"' => {
                    is_quoted = !is_quoted;
                    length = value.len();
                }
                '\\' if is_quoted => {
                    value.push(match self.peek() {
                        Some(c @ ('"' | '\\')) => c,
                        Some('n') => '\n',
                        Some('t') => '\t',
                        _ => return Err("has an escape in quotes other than \\\", \\\\, \\n and \\t"),
                    });
                    self.next();
                    length = value.len();
                }
                '\\' => {
                    if self.peek() == Some('\r') {
                        has_return = true;
                        self.next();
                    }
                    match self.peek() {
                        Some('\n') => {}
                        Some('"') => value.push('"'),
                        _ => {
                            return Err(
                                "has a backslash outside of quotes; write the value in double quotes, \
                                        each backslash twice",
                            );
                        }
                    }
                    self.next();
                    length = value.len();
                }
                // gcfg drops every carriage return in a value
                '\r' => has_return = true,
                c => {
                    value.push(c);
                    if is_quoted || !is_white_space(c) {
                        length = value.len();
                    }
                }
            }
        }
        let mut behind = self.rest.chars();
        let cut = match behind.next() {
            None | Some('\n') => Cut::No,
            Some(_) if !has_return && length == value.len() && length > 0 => Cut::Tight,
            Some(sign) if behind.next().is_some_and(|c| !c.is_whitespace() && c != sign) => Cut::Spaced,
            Some(_) => Cut::No,
        };
        value.truncate(length);
        Ok((value, cut))
    }
}

#[cfg(test)]
mod tests;

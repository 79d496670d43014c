//! XML as a tree, written with everything escaped.

use std::fmt;

use quick_xml::escape::escape;

/// An element with attributes, and with children or a text.
#[derive(Clone, Debug)]
pub(crate) struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    text: Option<String>,
    children: Vec<Self>,
}

impl Element {
    /// An empty element.
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, attributes: Vec::new(), text: None, children: Vec::new() }
    }

    /// An element with a text.
    pub(crate) fn text(name: &'static str, text: impl fmt::Display) -> Self {
        Self { text: Some(text.to_string()), ..Self::new(name) }
    }

    /// Adds an attribute.
    pub(crate) fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    /// Adds an attribute, if there is a value.
    pub(crate) fn with_some(self, name: &'static str, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a child.
    pub(crate) fn child(self, child: Self) -> Self {
        self.children([child])
    }

    /// Adds children.
    pub(crate) fn children(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.children.extend(children);
        self
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let Self { name, attributes, text, children } = self;
        write!(f, "{:1$}<{name}", "", depth * 2)?;
        for (key, value) in attributes {
            write!(f, " {key}='{}'", escape(value))?;
        }
        match text {
            Some(text) => writeln!(f, ">{}</{name}>", escape(text)),
            None if children.is_empty() => writeln!(f, "/>"),
            None => {
                writeln!(f, ">")?;
                children.iter().try_for_each(|child| child.write(f, depth + 1))?;
                writeln!(f, "{:1$}</{name}>", "", depth * 2)
            }
        }
    }
}

impl fmt::Display for Element {
    /// One element a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_escaped() {
        let element = Element::new("a")
            .with("x", "1'2\"<&")
            .with_some("y", None::<u8>)
            .child(Element::text("b", "</a>"))
            .child(Element::new("c"));
        assert_eq!(
            element.to_string(),
            "<a x='1&apos;2&quot;&lt;&amp;'>\n  <b>&lt;/a&gt;</b>\n  <c/>\n</a>\n"
        );
    }
}

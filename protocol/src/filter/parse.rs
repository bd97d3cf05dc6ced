//! A filter from its text: one function per rule of the grammar, as deep as the text is nested.

use super::{FILTER_BYTES_MAX, FILTER_DEPTH_MAX, Field, FilterError, FilterFault, Node, Pattern};

pub(super) fn parse(text: &str) -> Result<Node, FilterError> {
    if text.len() > FILTER_BYTES_MAX {
        return Err(FilterError { at: FILTER_BYTES_MAX, why: FilterFault::TooLong });
    }
    let mut parser = Parser { text, at: 0, depth: 0 };
    let node = parser.any()?;
    parser.skip_space();
    if parser.at < text.len() {
        return Err(parser.fault(FilterFault::ExpectedEnd));
    }
    Ok(node)
}

pub(super) fn parse_field(text: &str) -> Result<Field, FilterError> {
    if text.len() > FILTER_BYTES_MAX {
        return Err(FilterError { at: FILTER_BYTES_MAX, why: FilterFault::TooLong });
    }
    let mut parser = Parser { text, at: 0, depth: 0 };
    let field = parser.field()?;
    if parser.at < text.len() {
        return Err(parser.fault(FilterFault::ExpectedEnd));
    }
    Ok(field)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

/// What a name of a header or a word is made of.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'~' | b'-')
}

impl<'a> Parser<'a> {
    fn any(&mut self) -> Result<Node, FilterError> {
        self.list("or", Node::Any, Self::all)
    }

    fn all(&mut self) -> Result<Node, FilterError> {
        self.list("and", Node::All, Self::factor)
    }

    fn list(
        &mut self,
        word: &str,
        join: fn(Vec<Node>) -> Node,
        item: fn(&mut Self) -> Result<Node, FilterError>,
    ) -> Result<Node, FilterError> {
        let first = item(self)?;
        if !self.take_word(word) {
            return Ok(first);
        }
        let mut nodes = vec![first];
        loop {
            nodes.push(item(self)?);
            if !self.take_word(word) {
                return Ok(join(nodes));
            }
        }
    }

    fn factor(&mut self) -> Result<Node, FilterError> {
        self.skip_space();
        if self.take_word("not") {
            return self.nested(|parser| Ok(Node::Not(Box::new(parser.factor()?))));
        }
        if self.take("(") {
            return self.nested(|parser| {
                let node = parser.any()?;
                parser.skip_space();
                if parser.take(")") { Ok(node) } else { Err(parser.fault(FilterFault::ExpectedClose)) }
            });
        }
        let field = self.field()?;
        self.skip_space();
        let is_equal = match (self.take("=="), self.take("!=")) {
            (true, _) => true,
            (_, true) => false,
            _ => return Err(self.fault(FilterFault::ExpectedOperator)),
        };
        self.skip_space();
        Ok(Node::Compare { field, pattern: self.pattern()?, is_equal })
    }

    fn nested(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<Node, FilterError>,
    ) -> Result<Node, FilterError> {
        self.depth += 1;
        if self.depth > FILTER_DEPTH_MAX {
            return Err(self.fault(FilterFault::TooDeep));
        }
        let node = inner(self)?;
        self.depth -= 1;
        Ok(node)
    }

    fn field(&mut self) -> Result<Field, FilterError> {
        let start = self.at;
        let word = self.word();
        match word {
            "key" => Ok(Field::Key),
            "content_type" => Ok(Field::ContentType),
            _ => match word.strip_prefix("header.") {
                Some("") => Err(self.fault(FilterFault::ExpectedName)),
                Some(name) => Ok(Field::Header(name.to_owned())),
                None => Err(FilterError { at: start, why: FilterFault::ExpectedField }),
            },
        }
    }

    fn pattern(&mut self) -> Result<Pattern, FilterError> {
        let start = self.at;
        if !self.take("'") {
            return Err(self.fault(FilterFault::ExpectedText));
        }
        let mut text = String::new();
        loop {
            let Some(char) = self.rest().chars().next() else {
                return Err(FilterError { at: start, why: FilterFault::OpenText });
            };
            self.at += char.len_utf8();
            match char {
                '\'' => return Ok(Pattern { text, is_prefix: false }),
                '*' if self.take("'") => return Ok(Pattern { text, is_prefix: true }),
                '*' => return Err(FilterError { at: self.at - 1, why: FilterFault::MisplacedStar }),
                '\\' => match self.rest().chars().next().filter(|next| matches!(next, '\'' | '*' | '\\')) {
                    Some(next) => {
                        self.at += 1;
                        text.push(next);
                    }
                    None => return Err(FilterError { at: self.at - 1, why: FilterFault::BadEscape }),
                },
                other => text.push(other),
            }
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_ascii_start().len();
    }

    fn take(&mut self, text: &str) -> bool {
        let is_there = self.rest().starts_with(text);
        self.at += if is_there { text.len() } else { 0 };
        is_there
    }

    /// Takes a word that nothing of a name follows, and the space before it.
    fn take_word(&mut self, word: &str) -> bool {
        let before = self.at;
        self.skip_space();
        let is_there = self.word() == word;
        if !is_there {
            self.at = before;
        }
        is_there
    }

    /// Whatever a name can be made of; may be nothing.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let len = rest.bytes().take_while(|byte| is_name(*byte)).count();
        self.at += len;
        &rest[..len]
    }

    fn fault(&self, why: FilterFault) -> FilterError {
        FilterError { at: self.at, why }
    }
}

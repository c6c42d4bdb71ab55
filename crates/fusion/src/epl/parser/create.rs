//! `create window | table | schema | context`.

use super::{Parsed, Parser};
use crate::epl::ast::{
    Body, ColumnType, Context, CreateContext, CreateSchema, CreateTable, CreateWindow, Edge, Ident,
    Item, Shape,
};
use crate::epl::token::Token;

impl Parser {
    /// A statement that begins with CREATE.
    pub(super) fn create(&mut self) -> Parsed<Body> {
        self.expect_word("create")?;
        for representation in ["json", "map", "objectarray", "avro", "public", "private"] {
            self.word(representation);
        }
        if self.word("window") {
            self.create_window().map(Body::CreateWindow)
        } else if self.word("table") {
            let name = self.name("the table's name")?;
            self.word("as");
            self.expect_sign("(")?;
            let columns = self.list(")", Parser::column_type)?;
            Ok(Body::CreateTable(CreateTable { name, columns }))
        } else if self.word("schema") {
            self.create_schema().map(Body::CreateSchema)
        } else if self.word("context") {
            self.create_context().map(Body::CreateContext)
        } else {
            let hint = self.did_you_mean(&["window", "table", "schema", "context"]);
            Err(self.unexpected(&format!(
                "what is created is a window, table, schema or context{hint}"
            )))
        }
    }

    fn create_window(&mut self) -> Parsed<CreateWindow> {
        let name = self.name("the window's name")?;
        let (views, is_union) = self.views()?;
        self.word("as");
        let shape = if self.word("select") {
            let items: Vec<Item> = self.items(Parser::item)?;
            self.expect_word("from")?;
            Shape::Select(items, self.type_name("an event type")?.0)
        } else if self.sign("(") {
            match self.word("select") {
                false => Shape::Columns(self.list(")", Parser::column_type)?),
                true => {
                    let items: Vec<Item> = self.items(Parser::item)?;
                    self.expect_word("from")?;
                    let like = self.type_name("an event type")?.0;
                    self.expect_sign(")")?;
                    Shape::Select(items, like)
                }
            }
        } else {
            Shape::Like(self.type_name("the type of the window's events")?.0)
        };
        let insert = match self.word("insert") {
            true => Some(self.filter()?),
            false => None,
        };
        Ok(CreateWindow {
            name,
            views,
            is_union,
            shape,
            insert,
        })
    }

    fn create_schema(&mut self) -> Parsed<CreateSchema> {
        let name = self.name("the schema's name")?;
        self.word("as");
        let columns = match self.sign("(") {
            true => self.list(")", Parser::column_type)?,
            false => Vec::new(),
        };
        let parents = match self.word("inherits") || self.word("copyfrom") {
            true => self.items(|parser| Ok(parser.type_name("an event type")?.0))?,
            false => Vec::new(),
        };
        if columns.is_empty() && parents.is_empty() {
            return Err(self.unexpected("a schema has columns: write (name type, …)"));
        }
        Ok(CreateSchema {
            name,
            columns,
            parents,
        })
    }

    fn column_type(&mut self) -> Parsed<ColumnType> {
        let name = self.name("a column's name")?;
        if matches!(self.peek_at(1), Token::Sign("(")) {
            let aggregate = self.expr()?;
            return Ok(ColumnType {
                name,
                type_name: String::new(),
                is_key: false,
                aggregate: Some(aggregate),
            });
        }
        let mut type_name = self
            .type_name("the column's type")?
            .0
            .text
            .to_ascii_lowercase();
        if let Some((_, last)) = type_name.rsplit_once('.') {
            type_name = last.to_owned();
        }
        if self.sign("[") {
            self.expect_sign("]")?;
            type_name.push_str("[]");
        }
        let is_key = self.word("primary");
        if is_key {
            self.expect_word("key")?;
        }
        Ok(ColumnType {
            name,
            type_name,
            is_key,
            aggregate: None,
        })
    }

    fn create_context(&mut self) -> Parsed<CreateContext> {
        let name = self.name("the context's name")?;
        self.word("as");
        let kind = if self.word("partition") {
            self.word("by");
            self.partitions()?
        } else if self.is_word("group") {
            self.categories()?
        } else if self.word("coalesce") {
            return Err(self
                .here()
                .error("coalesce by hash is not supported: write partition by key from Type"));
        } else if self.word("start") {
            let start = self.edge()?;
            let end = match self.word("end") {
                true => Some(self.edge()?),
                false => None,
            };
            Context::Single(start, end)
        } else if self.word("initiated") {
            self.word("by");
            let start = self.edge()?;
            let end = match self.word("terminated") {
                true => {
                    self.word("by");
                    Some(self.edge()?)
                }
                false => None,
            };
            Context::Overlapping(start, end)
        } else {
            let hint = self.did_you_mean(&["partition", "group", "start", "initiated"]);
            return Err(self.unexpected(&format!(
                "a context is written partition by …, start … end …, initiated by … terminated \
                 by …, or group … as …{hint}"
            )));
        };
        Ok(CreateContext { name, kind })
    }

    fn partitions(&mut self) -> Parsed<Context> {
        let mut parts = Vec::new();
        loop {
            let mut keys = vec![self.expr()?];
            while self.sign(",") || self.word("and") {
                keys.push(self.expr()?);
            }
            self.expect_word("from")?;
            parts.push((keys, self.stream()?));
            if !self.sign(",") {
                break;
            }
        }
        let end = match self.word("terminated") {
            true => {
                self.word("by");
                Some(self.edge()?)
            }
            false => None,
        };
        Ok(Context::Partition(parts, end))
    }

    fn categories(&mut self) -> Parsed<Context> {
        let mut categories = Vec::new();
        loop {
            self.expect_word("group")?;
            self.word("by");
            let condition = self.expr()?;
            self.expect_word("as")?;
            categories.push((condition, self.name("the category's name")?));
            if !self.sign(",") {
                break;
            }
        }
        self.expect_word("from")?;
        Ok(Context::Category(categories, self.stream()?))
    }

    /// What starts or ends a partition of a context.
    fn edge(&mut self) -> Parsed<Edge> {
        if self.word("after") {
            return self.concatenation().map(Edge::After);
        }
        if self.sign("@") {
            self.expect_word("now")?;
            self.word("and");
            if matches!(self.peek(), Token::Word(_))
                && !self.is_word("end")
                && !self.is_word("terminated")
            {
                return Err(self.unexpected("@now stands alone: no further start is supported"));
            }
            return Ok(Edge::Now);
        }
        if self.sign("(") {
            return Ok(Edge::At(self.list(")", Parser::schedule_part)?));
        }
        if self.is_word("pattern") {
            self.skip();
            self.expect_sign("[")?;
            let pattern = self.pattern()?;
            self.expect_sign("]")?;
            return Ok(Edge::Pattern(Box::new(pattern)));
        }
        let stream = self.stream()?;
        let is_name = !self.is_word("end") && !self.is_word("terminated");
        let tag: Option<Ident> = match is_name {
            true => self.alias()?,
            false => None,
        };
        Ok(Edge::Event(stream, tag))
    }
}

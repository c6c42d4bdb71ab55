//! What names in a statement stand for: fields of its sources, tags and windows.

use super::Checked;
use super::calls::context_slot;
use crate::epl::ast::{Ident, Step};
use crate::epl::token::Place;
use crate::epl::{CLOCK, Catalog};
use crate::expression::{Expression, Pseudo};
use crate::functions::user::Binder;
use crate::json::FieldPath;
use crate::limits::FIELDS_MAX;
use crate::plan::{History, Input, Pick, Slot, SlotField, Subquery};
use crate::suggest::did_you_mean;

/// What `Expression::Field` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// Places in the plan's fields: a statement that works on one event at a time.
    Payload,
    /// Places in a query's slots.
    Slots,
}

/// The names that can be used, and the fields and slots that were.
pub struct Names {
    kind: Fields,
    fields: Vec<FieldPath>,
    slots: Vec<Slot>,
    aliases: Vec<Alias>,
    /// Whose fields names without an alias are.
    own: Option<u16>,
    /// Whose history is read instead of the event itself.
    history: Option<(History, u32)>,
    /// Whether aliases are variables of a row pattern, over the rows of one input.
    is_row_pattern: bool,
    /// Names of expressions: the measures of a row pattern.
    known: Vec<(String, Expression)>,
    /// Where sources of subqueries are looked up; none where subqueries have no place.
    catalog: Option<Catalog>,
    /// The subqueries and their inputs.
    subqueries: Vec<(Subquery, Input)>,
    /// Numbers below this one are no subquery's.
    reserved: u16,
    /// In a subquery, whose fields names without an alias are that its own source does not have.
    outer: Option<Option<u16>>,
    /// The functions of one's own that can be called.
    binder: Binder,
    /// Whether expressions are asked once more when an event leaves its window.
    is_asked_twice: bool,
}

struct Alias {
    name: String,
    number: u16,
    /// The columns of a named window or table.
    columns: Option<Vec<String>>,
}

impl Names {
    /// No names yet.
    pub fn new(kind: Fields, binder: Binder) -> Self {
        Names {
            kind,
            fields: Vec::new(),
            slots: Vec::new(),
            aliases: Vec::new(),
            own: None,
            history: None,
            is_row_pattern: false,
            known: Vec::new(),
            catalog: None,
            subqueries: Vec::new(),
            reserved: 0,
            outer: None,
            binder,
            is_asked_twice: false,
        }
    }

    /// Says whether expressions are asked once more when an event leaves; gives what it was before.
    pub fn set_asked_twice(&mut self, is_asked_twice: bool) -> bool {
        std::mem::replace(&mut self.is_asked_twice, is_asked_twice)
    }

    /// The time at which an expression is asked.
    ///
    /// # Errors
    /// It would be another one when the event leaves.
    pub fn now(&mut self, place: Place) -> Checked<Expression> {
        let mut known = self.known.iter();
        if let Some((_, clock)) = known.find(|(known, _)| known == CLOCK) {
            return Ok(clock.clone());
        }
        match (self.kind, self.is_asked_twice) {
            (Fields::Payload, _) => Ok(Expression::Pseudo(Pseudo::Timestamp)),
            (Fields::Slots, false) => self.slot(Slot::Now, place),
            (Fields::Slots, true) => Err(place.error(
                "current_timestamp is another one when the event leaves its window: ask for it in \
                 brackets behind the source's name, or in the select list, having or order by",
            )),
        }
    }

    /// The functions of one's own that can be called.
    pub fn binder(&self) -> &Binder {
        &self.binder
    }

    /// Says where sources of subqueries are looked up, or that subqueries have no place.
    pub fn set_catalog(&mut self, catalog: Option<Catalog>) {
        self.catalog = catalog;
    }

    /// Where sources of subqueries are looked up.
    pub fn catalog(&self) -> Option<&Catalog> {
        self.catalog.as_ref()
    }

    /// Says which columns a source has.
    pub fn set_columns(&mut self, number: u16, columns: Option<Vec<String>>) {
        let mut aliases = self.aliases.iter_mut();
        if let Some(alias) = aliases.find(|alias| alias.number == number) {
            alias.columns = columns;
        }
    }

    /// The number that no source, tag or subquery has.
    pub fn next_alias(&self) -> u16 {
        let subqueries = self.subqueries.iter();
        let taken = subqueries.map(|(subquery, _)| subquery.alias);
        let taken = taken.chain(self.aliases.iter().map(|alias| alias.number));
        taken
            .max()
            .map_or(0, |number| number + 1)
            .max(self.reserved)
    }

    /// Leaves the numbers below this one to inputs that no name stands for.
    pub fn reserve(&mut self, below: u16) {
        self.reserved = below;
    }

    /// Begins a subquery over a source of that name: names stand for it first. Gives what
    /// [`Names::leave`] takes.
    pub fn enter(&mut self, name: Ident, alias: u16) -> (Vec<Slot>, Option<u16>) {
        self.aliases.push(Alias {
            name: name.text,
            number: alias,
            columns: None,
        });
        let before = self.own.replace(alias);
        self.outer = Some(before);
        (std::mem::take(&mut self.slots), before)
    }

    /// Ends it and gives its slots.
    pub fn leave(&mut self, (slots, own): (Vec<Slot>, Option<u16>)) -> Vec<Slot> {
        self.outer = None;
        self.own = own;
        self.aliases.pop();
        std::mem::replace(&mut self.slots, slots)
    }

    /// In a subquery, whose fields names without an alias are in the statement around.
    pub fn outer(&self) -> Option<u16> {
        self.outer.flatten()
    }

    /// True within a subquery.
    pub fn is_inside(&self) -> bool {
        self.outer.is_some()
    }

    /// Notes a subquery and gives its number.
    pub fn add_subquery(&mut self, subquery: Subquery, input: Input) -> usize {
        self.subqueries.push((subquery, input));
        self.subqueries.len() - 1
    }

    /// How many subqueries there are.
    pub fn subqueries(&self) -> usize {
        self.subqueries.len()
    }

    /// The subqueries and their inputs.
    pub fn take_subqueries(&mut self) -> Vec<(Subquery, Input)> {
        std::mem::take(&mut self.subqueries)
    }

    /// What fields count.
    pub fn kind(&self) -> Fields {
        self.kind
    }

    /// Gives a source or tag its name.
    ///
    /// # Errors
    /// Another has it.
    pub fn add(&mut self, name: &Ident, number: u16) -> Checked<()> {
        if self.number(&name.text).is_some() {
            let message = format!("two sources are called {}: name one with as", name.text);
            return Err(name.place.error(message));
        }
        self.aliases.push(Alias {
            name: name.text.clone(),
            number,
            columns: None,
        });
        Ok(())
    }

    /// The number of the source or tag of that name.
    pub fn number(&self, name: &str) -> Option<u16> {
        // That of a subquery stands last, and before those around it.
        let mut aliases = self.aliases.iter().rev();
        let alias = aliases.find(|alias| alias.name == name);
        alias.map(|alias| alias.number)
    }

    /// The names of the sources and tags, with their numbers.
    pub fn aliases(&self) -> impl Iterator<Item = (&str, u16)> {
        self.aliases
            .iter()
            .map(|alias| (alias.name.as_str(), alias.number))
    }

    /// Says whose fields names without an alias are; gives who it was before.
    pub fn set_own(&mut self, own: Option<u16>) -> Option<u16> {
        std::mem::replace(&mut self.own, own)
    }

    /// Whose fields names without an alias are.
    pub fn own(&self) -> Option<u16> {
        self.own
    }

    /// Makes aliases the variables of a row pattern.
    pub fn set_row_pattern(&mut self) {
        self.is_row_pattern = true;
    }

    /// Says whether fields are those of an earlier event; gives what it was before.
    pub fn set_history(&mut self, history: Option<(History, u32)>) -> Option<(History, u32)> {
        std::mem::replace(&mut self.history, history)
    }

    /// Makes these the only names beside sources.
    pub fn set_known(&mut self, known: Vec<(String, Expression)>) {
        self.known = known;
    }

    /// The names given to expressions.
    pub fn known(&self) -> &[(String, Expression)] {
        &self.known
    }

    /// The fields and slots that were used.
    pub fn into_parts(self) -> (Vec<FieldPath>, Vec<Slot>) {
        (self.fields, self.slots)
    }

    /// What a path stands for.
    ///
    /// # Errors
    /// It begins with no source of the statement, or reads what cannot be read.
    pub fn resolve(&mut self, path: &[Step], place: Place) -> Checked<Expression> {
        if let [Step::Name(first), Step::Name(name)] = path
            && first.eq_ignore_ascii_case("context")
            && self.kind == Fields::Slots
            && let Some(slot) = context_slot(name)
        {
            return self.slot(slot, place);
        }
        let (alias, pick, rest) = self.owner(path, place)?;
        if let [Step::Name(name)] = path
            && let Some((_, expression)) = self.known.iter().find(|(known, _)| known == name)
        {
            return Ok(expression.clone());
        }
        if rest.is_empty() {
            let whole = SlotField::Payload(self.payload(&[], place)?);
            return self.event_field(alias, pick, whole, place);
        }
        let mut names = Vec::with_capacity(rest.len());
        for step in rest {
            match step {
                Step::Name(name) => names.push(name.clone()),
                Step::Index(index) => {
                    return Err(place.error(format!(
                        "[{index}] counts the events of a pattern's name, not the elements of a \
                         field"
                    )));
                }
            }
        }
        if names.len() == 1
            && let Some(pseudo) = Pseudo::named(&names[0])
        {
            return self.event_field(alias, pick, SlotField::Pseudo(pseudo), place);
        }
        let names = match names.as_slice() {
            [first, rest @ ..] if first == "payload" => rest,
            names => names,
        };
        if let (Some(columns), Some(first)) = (self.columns_of(alias), names.first())
            && !columns.contains(first)
        {
            let hint = did_you_mean(first, columns.iter().map(String::as_str));
            return Err(place.error(format!(
                "there is no column {first}: there are {}{hint}",
                columns.join(", ")
            )));
        }
        let field = SlotField::Payload(self.payload(names, place)?);
        self.event_field(alias, pick, field, place)
    }

    /// The whole event of a source or tag.
    ///
    /// # Errors
    /// The statement reads too many fields.
    pub fn whole(&mut self, alias: u16, place: Place) -> Checked<Expression> {
        let field = SlotField::Payload(self.payload(&[], place)?);
        self.event_field(alias, Pick::Last, field, place)
    }

    /// Whose field a path is: the source or tag, which of its events, and the path in there.
    fn owner<'p>(&self, path: &'p [Step], place: Place) -> Checked<(u16, Pick, &'p [Step])> {
        let Some(Step::Name(first)) = path.first() else {
            return Err(place.error("a name is missing"));
        };
        if let Some(alias) = self.number(first) {
            return match &path[1..] {
                [Step::Index(index), rest @ ..] => match u16::try_from(*index) {
                    Ok(index) => Ok((alias, Pick::Nth(index), rest)),
                    Err(_) => Err(place.error(format!("no pattern repeats {index} times"))),
                },
                rest => Ok((alias, Pick::Last, rest)),
            };
        }
        if let Some(own) = self.own {
            let outer = self.outer.flatten();
            let is_outer = outer.is_some()
                && self
                    .columns_of(own)
                    .is_some_and(|columns| !columns.contains(first));
            let own = outer.filter(|_| is_outer).unwrap_or(own);
            return Ok((own, Pick::Last, path));
        }
        if path.len() == 1 && self.known.iter().any(|(known, _)| known == first) {
            return Ok((0, Pick::Last, path));
        }
        let names: Vec<&str> = self
            .aliases()
            .map(|(name, _)| name)
            .chain(self.known.iter().map(|(name, _)| name.as_str()))
            .collect();
        let hint = did_you_mean(first, names.iter().copied());
        let example = names.first().copied().unwrap_or("a");
        Err(place.error(if path.len() == 1 {
            format!("whose {first} is meant? Write it as {example}.{first}{hint}")
        } else {
            format!(
                "there is no source {first}: there are {}{hint}",
                names.join(", ")
            )
        }))
    }

    fn columns_of(&self, number: u16) -> Option<&[String]> {
        let mut aliases = self.aliases.iter();
        let alias = aliases.find(|alias| alias.number == number)?;
        alias.columns.as_deref()
    }

    fn payload(&mut self, path: &[String], place: Place) -> Checked<u16> {
        if let Some(known) = self.fields.iter().position(|field| field.0 == path) {
            return Ok(known as u16);
        }
        if self.fields.len() >= FIELDS_MAX {
            return Err(place.error(format!(
                "more than {FIELDS_MAX} fields in one statement: use fewer"
            )));
        }
        self.fields.push(FieldPath(path.to_vec()));
        Ok((self.fields.len() - 1) as u16)
    }

    fn event_field(
        &mut self,
        alias: u16,
        pick: Pick,
        field: SlotField,
        place: Place,
    ) -> Checked<Expression> {
        if self.kind == Fields::Payload {
            return Ok(match field {
                SlotField::Payload(place) => Expression::Field(place),
                SlotField::Pseudo(pseudo) => Expression::Pseudo(pseudo),
                SlotField::Time => Expression::Pseudo(Pseudo::Timestamp),
            });
        }
        let slot = match self.history {
            None => Slot::Event { alias, pick, field },
            Some((kind, steps)) => {
                let input = if self.is_row_pattern { 0 } else { alias };
                Slot::History {
                    input,
                    kind,
                    steps,
                    field,
                }
            }
        };
        self.slot(slot, place)
    }

    /// The place of a slot, which is added when it is new.
    ///
    /// # Errors
    /// The statement reads too much.
    pub fn slot(&mut self, slot: Slot, place: Place) -> Checked<Expression> {
        if let Some(known) = self.slots.iter().position(|known| *known == slot) {
            return Ok(Expression::Field(known as u16));
        }
        if self.slots.len() >= FIELDS_MAX {
            return Err(place.error(format!(
                "more than {FIELDS_MAX} fields in one statement: use fewer"
            )));
        }
        self.slots.push(slot);
        Ok(Expression::Field((self.slots.len() - 1) as u16))
    }
}

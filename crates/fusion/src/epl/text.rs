//! What a column without a name is called: its expression as text.

use super::ast::{BinaryOperator, Call, Choices, Expr, ExprKind, Step, UnaryOperator};

/// The expression as text, without blanks around signs.
pub fn text_of(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Null => "null".to_owned(),
        ExprKind::Bool(truth) => truth.to_string(),
        ExprKind::Int(number) => number.to_string(),
        ExprKind::Float(number) => format!("{number:?}"),
        ExprKind::Text(text) => format!("\"{text}\""),
        ExprKind::Star => "*".to_owned(),
        ExprKind::Period(parts) => {
            let parts = parts.iter().map(|(amount, unit)| {
                format!("{} {}", text_of(amount), format!("{unit:?}").to_lowercase())
            });
            parts.collect::<Vec<_>>().join(" ")
        }
        ExprKind::Path(steps) => path(steps),
        ExprKind::Call(call) => call_text(call),
        ExprKind::Unary(UnaryOperator::Minus, inner) => format!("-{}", text_of(inner)),
        ExprKind::Unary(UnaryOperator::Not, inner) => format!("not {}", text_of(inner)),
        ExprKind::Binary(operator, sides) => {
            let own = strength(*operator);
            let sides = [bracketed(&sides[0], own), bracketed(&sides[1], own + 1)];
            format!("{}{}{}", sides[0], sign(*operator), sides[1])
        }
        ExprKind::IsNull(inner, true) => format!("{} is not null", text_of(inner)),
        ExprKind::IsNull(inner, false) => format!("{} is null", text_of(inner)),
        ExprKind::In(inner, choices, negated) => {
            let choices = match choices {
                Choices::List(list) => format!("({})", list_text(list)),
                Choices::Range { ends, .. } => {
                    format!("[{}:{}]", text_of(&ends[0]), text_of(&ends[1]))
                }
                Choices::Subquery(_) => "(select)".to_owned(),
            };
            format!("{} {}in {choices}", text_of(inner), word_not(*negated))
        }
        ExprKind::Between(parts, negated) => format!(
            "{} {}between {} and {}",
            text_of(&parts[0]),
            word_not(*negated),
            text_of(&parts[1]),
            text_of(&parts[2])
        ),
        ExprKind::Like(sides, _, negated) => {
            format!(
                "{} {}like {}",
                text_of(&sides[0]),
                word_not(*negated),
                text_of(&sides[1])
            )
        }
        ExprKind::Regexp(sides, negated) => {
            format!(
                "{} {}regexp {}",
                text_of(&sides[0]),
                word_not(*negated),
                text_of(&sides[1])
            )
        }
        ExprKind::Case {
            operand,
            branches,
            otherwise,
        } => {
            let operand = operand
                .as_ref()
                .map_or_else(String::new, |expr| format!(" {}", text_of(expr)));
            let branches: String = branches
                .iter()
                .map(|(when, then)| format!(" when {} then {}", text_of(when), text_of(then)))
                .collect();
            let otherwise = otherwise.as_ref();
            let otherwise =
                otherwise.map_or_else(String::new, |expr| format!(" else {}", text_of(expr)));
            format!("case{operand}{branches}{otherwise} end")
        }
        ExprKind::Cast(inner, to) => format!("cast({},{to})", text_of(inner)),
        ExprKind::Subquery(_) => "subselect".to_owned(),
        ExprKind::Exists(_) => "exists(subselect)".to_owned(),
    }
}

fn bracketed(expr: &Expr, outer: u8) -> String {
    match &expr.kind {
        ExprKind::Binary(operator, _) if strength(*operator) < outer => {
            format!("({})", text_of(expr))
        }
        _ => text_of(expr),
    }
}

fn call_text(call: &Call) -> String {
    let distinct = if call.distinct { "distinct " } else { "" };
    let filter = call.filter.as_ref();
    let filter = filter.map_or_else(String::new, |filter| format!(",filter:{}", text_of(filter)));
    let mut text = format!(
        "{}({distinct}{}{filter})",
        path(&call.path),
        list_text(&call.arguments)
    );
    for (name, arguments) in &call.then {
        text.push('.');
        text.push_str(name);
        if let Some(arguments) = arguments {
            text.push_str(&format!("({})", list_text(arguments)));
        }
    }
    text
}

fn list_text(list: &[Expr]) -> String {
    list.iter().map(text_of).collect::<Vec<_>>().join(",")
}

fn path(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        match step {
            Step::Name(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

fn word_not(negated: bool) -> &'static str {
    if negated { "not " } else { "" }
}

fn strength(operator: BinaryOperator) -> u8 {
    match operator {
        BinaryOperator::Or => 1,
        BinaryOperator::And => 2,
        BinaryOperator::Equal
        | BinaryOperator::NotEqual
        | BinaryOperator::Is
        | BinaryOperator::IsNot => 3,
        BinaryOperator::Less
        | BinaryOperator::LessOrEqual
        | BinaryOperator::Greater
        | BinaryOperator::GreaterOrEqual => 4,
        BinaryOperator::Concat => 5,
        BinaryOperator::BitAnd | BinaryOperator::BitOr | BinaryOperator::BitXor => 6,
        BinaryOperator::Add | BinaryOperator::Subtract => 7,
        BinaryOperator::Multiply | BinaryOperator::Divide | BinaryOperator::Remainder => 8,
    }
}

fn sign(operator: BinaryOperator) -> &'static str {
    match operator {
        BinaryOperator::Or => " or ",
        BinaryOperator::And => " and ",
        BinaryOperator::Equal => "=",
        BinaryOperator::NotEqual => "!=",
        BinaryOperator::Is => " is ",
        BinaryOperator::IsNot => " is not ",
        BinaryOperator::Less => "<",
        BinaryOperator::LessOrEqual => "<=",
        BinaryOperator::Greater => ">",
        BinaryOperator::GreaterOrEqual => ">=",
        BinaryOperator::Concat => "||",
        BinaryOperator::BitAnd => "&",
        BinaryOperator::BitOr => "|",
        BinaryOperator::BitXor => "^",
        BinaryOperator::Add => "+",
        BinaryOperator::Subtract => "-",
        BinaryOperator::Multiply => "*",
        BinaryOperator::Divide => "/",
        BinaryOperator::Remainder => "%",
    }
}

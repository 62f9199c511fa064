//! The grammar of conditions. From the loosest operator to the tightest: `or`; `and`; `not`; comparisons, `in` and
//! `is missing`; `+` and `-`; `*` and `/`; the sign `-`.

use super::values::{Comparator, ConditionValue, Operation};
use super::{Expression, Node, SIZES};
use std::borrow::Cow;
use winnow::ascii::{Caseless, float, multispace0};
use winnow::combinator::{alt, cut_err, delimited, not, opt, peek, preceded, separated, terminated};
use winnow::error::ContextError;
use winnow::stream::{LocatingSlice, Location};
use winnow::token::{one_of, take_till, take_while};
use winnow::{ModalParser, ModalResult, Parser};

type Input<'i> = LocatingSlice<&'i str>;

/// The largest number of characters, and of parentheses and prefixes within each other, so that no condition overflows
/// the stack.
const LONGEST: usize = 4_000;
const DEEPEST: usize = 32;

/// Words that are names of columns only in backticks.
const RESERVED: [&str; 8] = ["and", "or", "not", "in", "is", "missing", "true", "false"];

/// Reads a condition. The error says what is wrong, and where.
pub(super) fn condition(text: &str) -> Result<Expression, String> {
    let words = text.split_whitespace().filter(|word| word.to_ascii_lowercase().starts_with("not"));
    let nested = words.count().max(text.matches(['(', '[']).count()).max(text.matches('-').count());
    if text.len() > LONGEST || nested > DEEPEST {
        return Err(format!(
            "is too long: at most {LONGEST} bytes are allowed, and {DEEPEST} each of parentheses, `not` and `-`"
        ));
    }
    terminated(either, multispace0).parse(LocatingSlice::new(text)).map_err(|error| {
        let at = (0..=error.offset()).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        let at = text.len() - text[at..].trim_start().len();
        let rest: String = text[at..].chars().take(20).collect();
        if rest.is_empty() {
            return format!("ends too early: something is missing after {:?}", text.trim_end());
        }
        format!(
            "has a mistake at character {}, at {rest:?}: write conditions like width >= 512 and aspect < 2, texts in \
             quotes, and names of columns that are not plain words in backticks",
            text[..at].chars().count() + 1
        )
    })
}

fn either(input: &mut Input<'_>) -> ModalResult<Expression> {
    chain(input, both, word("or"), |a, (), b| join(a, b, Node::Either))
}

fn both(input: &mut Input<'_>) -> ModalResult<Expression> {
    chain(input, negation, word("and"), |a, (), b| join(a, b, Node::Both))
}

/// Parts with operators between them, which associate to the left.
fn chain<'i, Operator>(
    input: &mut Input<'i>,
    part: fn(&mut Input<'i>) -> ModalResult<Expression>,
    mut operator: impl ModalParser<Input<'i>, Operator, ContextError>,
    join: impl Fn(Expression, Operator, Expression) -> Expression,
) -> ModalResult<Expression> {
    let mut all = part(input)?;
    while let Some(by) = opt(operator.by_ref()).parse_next(input)? {
        all = join(all, by, cut_err(part).parse_next(input)?);
    }
    Ok(all)
}

fn negation(input: &mut Input<'_>) -> ModalResult<Expression> {
    let negated = (place, word("not"), cut_err(negation)).map(|(at, (), of)| negate(at, of));
    alt((negated, test)).parse_next(input)
}

/// What a test does with its first operand.
enum Test {
    Compare(Comparator, Expression),
    Within(Expression),
    OneOf(Vec<ConditionValue<'static>>),
    IsMissing,
}

/// A value, or a value and a test of it.
fn test(input: &mut Input<'_>) -> ModalResult<Expression> {
    let of = sum.parse_next(input)?;
    let inside = preceded(word("in"), cut_err(alt((list.map(Test::OneOf), sum.map(Test::Within)))));
    let missing = (word("is"), cut_err((opt(word("not")), word("missing"))));
    let compared = (comparison, cut_err(sum)).map(|(by, other)| Test::Compare(by, other));
    let tests = alt((
        compared.map(|test| (false, test)),
        (opt((word("not"), peek(word("in")))), inside).map(|(is_not, test)| (is_not.is_some(), test)),
        missing.map(|((), (is_not, ()))| (is_not.is_some(), Test::IsMissing)),
    ));
    let Some((is_negated, test)) = opt(tests).parse_next(input)? else { return Ok(of) };
    let at = of.at;
    let tested = match test {
        Test::Compare(by, other) => join(of, other, |parts| Node::Compare(by, parts)),
        Test::Within(text) => join(of, text, Node::Within),
        Test::OneOf(values) => Expression { at, node: Node::OneOf(Box::new(of), values) },
        Test::IsMissing => Expression { at, node: Node::IsMissing(Box::new(of)) },
    };
    Ok(if is_negated { negate(at, tested) } else { tested })
}

fn comparison(input: &mut Input<'_>) -> ModalResult<Comparator> {
    let operator = alt((
        "<=".value(Comparator::LessOrEqual),
        ">=".value(Comparator::GreaterOrEqual),
        "!=".value(Comparator::NotEqual),
        "<>".value(Comparator::NotEqual),
        "==".value(Comparator::Equal),
        "=".value(Comparator::Equal),
        "<".value(Comparator::Less),
        ">".value(Comparator::Greater),
    ));
    preceded(multispace0, operator).parse_next(input)
}

fn sum(input: &mut Input<'_>) -> ModalResult<Expression> {
    let operator = alt((symbol('+').value(Operation::Add), symbol('-').value(Operation::Subtract)));
    chain(input, product, operator, compute)
}

fn product(input: &mut Input<'_>) -> ModalResult<Expression> {
    let operator = alt((symbol('*').value(Operation::Multiply), symbol('/').value(Operation::Divide)));
    chain(input, signed, operator, compute)
}

fn signed(input: &mut Input<'_>) -> ModalResult<Expression> {
    let negative = (place, symbol('-'), cut_err(signed)).map(|(at, _, of)| {
        let zero = Expression { at, node: Node::Literal(ConditionValue::Whole(0)) };
        compute(zero, Operation::Subtract, of)
    });
    alt((negative, operand)).parse_next(input)
}

fn operand(input: &mut Input<'_>) -> ModalResult<Expression> {
    let inner = delimited(symbol('('), cut_err(either), cut_err(symbol(')')));
    let of_text = |name: &'static str| {
        (place, terminated(word(name), symbol('(')), cut_err(terminated(sum, symbol(')'))))
    };
    let length = of_text("len").map(|(at, (), of)| Expression { at, node: Node::Length(Box::new(of)) });
    let lower = of_text("lower").map(|(at, (), of)| Expression { at, node: Node::Lower(Box::new(of)) });
    let stated = (place, literal).map(|(at, value)| Expression { at, node: Node::Literal(value) });
    alt((inner, length, lower, stated, named)).parse_next(input)
}

/// The name of a column, or of a size of the image.
fn named(input: &mut Input<'_>) -> ModalResult<Expression> {
    let is_reserved = |name: &str| RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name));
    let plain = (place, plain_word.verify(move |name: &str| !is_reserved(name))).map(|(at, name)| {
        let size = SIZES.iter().position(|size| *size == name);
        Expression { at, node: size.map_or_else(|| Node::Column(name.to_owned()), Node::Size) }
    });
    let quoted = (place, delimited('`', cut_err(take_till(1.., '`')), cut_err('`')))
        .map(|(at, name): (usize, &str)| Expression { at, node: Node::Column(name.to_owned()) });
    alt((plain, quoted)).parse_next(input)
}

fn list(input: &mut Input<'_>) -> ModalResult<Vec<ConditionValue<'static>>> {
    let value = preceded(multispace0, literal);
    delimited(symbol('['), cut_err(separated(1.., value, symbol(','))), cut_err(symbol(']')))
        .parse_next(input)
}

fn literal(input: &mut Input<'_>) -> ModalResult<ConditionValue<'static>> {
    let text = |quote: char| delimited(quote, take_till(0.., quote), cut_err(quote));
    let text =
        alt((text('\''), text('"'))).map(|text: &str| ConditionValue::Text(Cow::Owned(text.to_owned())));
    let truth = alt((word("true").value(true), word("false").value(false))).map(ConditionValue::Truth);
    alt((preceded(multispace0, text), truth, preceded(multispace0, number))).parse_next(input)
}

fn number(input: &mut Input<'_>) -> ModalResult<ConditionValue<'static>> {
    let digit = |c: char| c.is_ascii_digit();
    let whole = terminated(take_while(1.., digit).try_map(str::parse::<i64>), not(one_of(['.', 'e', 'E'])))
        .map(ConditionValue::Whole);
    // A sign is an operator, and names such as `inf` are not numbers.
    let real = preceded(peek(one_of(|c: char| digit(c) || c == '.')), float::<_, f64, _>)
        .map(ConditionValue::Number);
    let not_in_word = not(one_of(|c: char| c.is_alphanumeric() || c == '_'));
    preceded(opt('-'), terminated(alt((whole, real)), not_in_word))
        .with_taken()
        .map(signed_number)
        .parse_next(input)
}

fn signed_number((value, taken): (ConditionValue<'static>, &str)) -> ConditionValue<'static> {
    match value {
        ConditionValue::Whole(number) if taken.starts_with('-') => ConditionValue::Whole(-number),
        ConditionValue::Number(number) if taken.starts_with('-') => ConditionValue::Number(-number),
        value => value,
    }
}

fn plain_word<'i>(input: &mut Input<'i>) -> ModalResult<&'i str> {
    let first = one_of(|c: char| c.is_alphabetic() || c == '_');
    let rest = take_while(0.., |c: char| c.is_alphanumeric() || c == '_' || c == '.');
    (first, rest).take().parse_next(input)
}

/// This word, in any case, and not the beginning of a longer one.
fn word<'i>(word: &'static str) -> impl ModalParser<Input<'i>, (), ContextError> {
    let end = not(one_of(|c: char| c.is_alphanumeric() || c == '_'));
    delimited(multispace0, Caseless(word), end).void()
}

fn symbol<'i>(symbol: char) -> impl ModalParser<Input<'i>, char, ContextError> {
    preceded(multispace0, symbol)
}

/// The number of the character that comes next, from 1.
fn place(input: &mut Input<'_>) -> ModalResult<usize> {
    multispace0.parse_next(input)?;
    Ok(input.current_token_start() + 1)
}

fn join(a: Expression, b: Expression, node: impl FnOnce(Box<[Expression; 2]>) -> Node) -> Expression {
    Expression { at: a.at, node: node(Box::new([a, b])) }
}

fn compute(a: Expression, by: Operation, b: Expression) -> Expression {
    join(a, b, |parts| Node::Compute(by, parts))
}

fn negate(at: usize, of: Expression) -> Expression {
    Expression { at, node: Node::Not(Box::new(of)) }
}

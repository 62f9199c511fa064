//! Makes a struct of options, and its table, from rows.

/// Defines a struct of options with its defaults, and the table of its settings. `$place` is the expression for the
/// struct within `LoaderOptions`. `also` has a field of the struct that is not a setting.
macro_rules! settings {
    (
        $(#[doc = $about:literal])+ $type_name:ident, |$options:ident| $place:expr;
        $(also $also:ident: $also_type:ty = $also_default:expr, $about_also:literal;)?
        $(#[doc = $about_table:literal])+ $table:ident;
        $(
            $(#[doc = $line:literal])+
            $name:ident: $type:ty = $default:expr, $form:expr,
                $topic:ident, $decides:ident $(.$clause:ident($($argument:expr),*))*;
        )*
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone)]
        pub struct $type_name {
            $(#[doc = $about_also] pub $also: $also_type,)?
            $($(#[doc = $line])+ pub $name: $type,)*
        }

        impl Default for $type_name {
            fn default() -> Self {
                Self { $($also: $also_default,)? $($name: $default,)* }
            }
        }

        $(#[doc = $about_table])+
        pub(super) static $table: &[Setting] = &[$(
            Setting {
                name: stringify!($name),
                topic: Topic::$topic,
                decides: Affects::$decides,
                member: None,
                flag: Some(stringify!($name)),
                flag_alias: None,
                loaders: &$crate::config::LoaderKind::ALL,
                datasets_only: false,
                in_files: None,
                in_fields: None,
                none_is_default: false,
                lines: &[$($line),+],
                describe: || ValueKind::<$type>::describe(&$form),
                parse_word: |word| ValueKind::<$type>::parse_word(&$form, word),
                write: |$options, given| ValueKind::read(&$form, given).map(|value| $place.$name = value),
                reset: |$options| $place.$name = $default,
                check: |$options| ValueKind::check(&$form, &$place.$name),
                show: |$options| ValueKind::show(&$form, &$place.$name),
                identify: |$options| format!("{:?}", $place.$name),
            }
            $(.$clause($($argument),*))*
        ),*];
    };
}
pub(super) use settings;

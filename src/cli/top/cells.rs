//! Strings in terminal cells. Characters of some scripts take two cells, and combining characters take none.

use unicode_width::UnicodeWidthChar;

pub(super) fn width(text: &str) -> usize {
    text.chars().map(cells).sum()
}

pub(super) fn beginning(text: &str, room: usize) -> String {
    within(text.chars(), room).collect()
}

pub(super) fn end(text: &str, room: usize) -> String {
    let backwards: Vec<char> = within(text.chars().rev(), room).collect();
    backwards.into_iter().rev().collect()
}

pub(super) fn padded(text: &str, room: usize) -> String {
    format!("{text}{}", " ".repeat(room.saturating_sub(width(text))))
}

fn cells(of: char) -> usize {
    of.width().unwrap_or(0)
}

fn within(text: impl Iterator<Item = char>, room: usize) -> impl Iterator<Item = char> {
    let mut left = room;
    text.take_while(move |of| {
        let taken = left.checked_sub(cells(*of));
        left = taken.unwrap_or(left);
        taken.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_takes_no_more_cells_than_there_are() {
        assert_eq!((width("写真ab"), width("e\u{301}")), (6, 1));
        assert_eq!(
            ["写", "写", "写真", "写真a"].map(str::to_owned),
            [2, 3, 4, 5].map(|room| beginning("写真ab", room))
        );
        assert_eq!(
            ["b", "ab", "ab", "真ab"].map(str::to_owned),
            [1, 2, 3, 4].map(|room| end("写真ab", room))
        );
        assert_eq!((padded("写", 4), padded("写真", 3)), ("写  ".into(), "写真".into()));
    }
}

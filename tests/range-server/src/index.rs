//! Pages that list a directory, in the formats of common servers.

use crate::IndexStyle;
use std::fmt::Write;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

/// The data of an entry on a page.
struct Listed {
    /// The name, with a slash at the end if it is a directory.
    name: Vec<u8>,
    size: Option<u64>,
    modified: SystemTime,
}

impl Listed {
    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}

/// The page of the directory `path`, which the client knows as `raw` (encoded) and `decoded`.
pub(crate) fn page(path: &Path, decoded: &[u8], style: IndexStyle) -> io::Result<String> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let mut name = entry.file_name().as_bytes().to_vec();
        // A dangling link is listed as a link.
        let metadata = fs::metadata(entry.path()).or_else(|_| entry.metadata())?;
        if metadata.is_dir() {
            name.push(b'/');
        }
        let size = metadata.is_file().then_some(metadata.len());
        entries.push(Listed { name, size, modified: metadata.modified()? });
    }
    let here = String::from_utf8_lossy(decoded);
    Ok(match style {
        IndexStyle::Python => python(&here, entries),
        IndexStyle::Nginx => nginx(&here, entries),
        IndexStyle::Apache | IndexStyle::Off => apache(&here, entries),
    })
}

/// The format of `python3 -m http.server`: only names.
fn python(here: &str, mut entries: Vec<Listed>) -> String {
    entries.sort_by_key(|entry| entry.shown().to_lowercase());
    let title = format!("Directory listing for {}", escape(here, false));
    let mut page = format!(
        "<!DOCTYPE HTML>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n</head>\n\
         <body>\n<h1>{title}</h1>\n<hr>\n<ul>\n"
    );
    for entry in &entries {
        let (href, shown) = (encode(&entry.name, b""), escape(&entry.shown(), false));
        let _ = writeln!(page, "<li><a href=\"{href}\">{shown}</a></li>");
    }
    page + "</ul>\n<hr>\n</body>\n</html>\n"
}

/// The format of nginx's `autoindex`: directories first, and long names truncated in the visible text.
fn nginx(here: &str, mut entries: Vec<Listed>) -> String {
    entries.sort_by(|a, b| (a.size.is_some(), &a.name).cmp(&(b.size.is_some(), &b.name)));
    let title = format!("Index of {}", escape(here, true));
    let mut page = format!(
        "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<h1>{title}</h1><hr><pre>\
         <a href=\"../\">../</a>\r\n"
    );
    for entry in &entries {
        let whole: Vec<char> = entry.shown().chars().collect();
        let (shown, cut) = if whole.len() > 50 { (&whole[..47], "..&gt;") } else { (&whole[..], "") };
        let padding = " ".repeat(50 - shown.len().min(50) - if cut.is_empty() { 0 } else { 3 });
        let shown = escape(&shown.iter().collect::<String>(), true);
        let size = entry.size.map_or("-".to_owned(), |size| size.to_string());
        let (href, when) = (encode(&entry.name, b""), minute(entry.modified, "-"));
        let _ = write!(page, "<a href=\"{href}\">{shown}{cut}</a>{padding} {when} {size:>19}\r\n");
    }
    page + "</pre><hr></body>\r\n</html>\r\n"
}

/// The format of Apache's `mod_autoindex` with `FancyIndexing HTMLTable`: links that sort, a link to the parent,
/// rounded sizes.
fn apache(here: &str, mut entries: Vec<Listed>) -> String {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let title =
        format!("Index of {}", escape(if here == "/" { here } else { here.trim_end_matches('/') }, true));
    let mut page = format!(
        "<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 3.2 Final//EN\">\n<html>\n <head>\n  <title>{title}</title>\n \
         </head>\n <body>\n<h1>{title}</h1>\n  <table>\n   <tr><th valign=\"top\">\
         <img src=\"/icons/blank.gif\" alt=\"[ICO]\"></th><th><a href=\"?C=N;O=D\">Name</a></th>\
         <th><a href=\"?C=M;O=A\">Last modified</a></th><th><a href=\"?C=S;O=A\">Size</a></th>\
         <th><a href=\"?C=D;O=A\">Description</a></th></tr>\n   <tr><th colspan=\"5\"><hr></th></tr>\n"
    );
    if here != "/" {
        let above = here.trim_end_matches('/').rsplit_once('/').map_or("", |(above, _)| above);
        let _ = writeln!(
            page,
            "<tr><td valign=\"top\"><img src=\"/icons/back.gif\" alt=\"[PARENTDIR]\"></td>\
             <td><a href=\"{}/\">Parent Directory</a></td><td>&nbsp;</td><td align=\"right\">  - </td>\
             <td>&nbsp;</td></tr>",
            escape(&encode(above.as_bytes(), b"/$+!*'(),:@&="), true)
        );
    }
    for entry in &entries {
        let href = escape(&encode(&entry.name, b"$+!*'(),:@&="), true);
        let size = match entry.size {
            None => "  - ".to_owned(),
            Some(size) if size < 973 => format!("{size:>3} "),
            Some(size) if size < 10 << 10 => format!("{:.1}K", size as f64 / 1024.0),
            Some(size) if size < 973 << 10 => format!("{:>3}K", size >> 10),
            Some(size) => format!("{:.1}M", size as f64 / f64::from(1 << 20)),
        };
        let (shown, when) = (escape(&entry.shown(), true), minute(entry.modified, " "));
        let _ = writeln!(
            page,
            "<tr><td valign=\"top\"><img src=\"/icons/unknown.gif\" alt=\"[   ]\"></td>\
             <td><a href=\"{href}\">{shown}</a></td><td align=\"right\">{when}  </td>\
             <td align=\"right\">{size}</td><td>&nbsp;</td></tr>"
        );
    }
    page + "   <tr><th colspan=\"5\"><hr></th></tr>\n</table>\n</body></html>\n"
}

/// A name encoded for a URL. Letters, digits, `-._~`, a slash at the end and the bytes of `also` stay.
fn encode(name: &[u8], also: &[u8]) -> String {
    let mut encoded = String::new();
    for (at, byte) in name.iter().enumerate() {
        let end = at + 1 == name.len() && *byte == b'/';
        if end || byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || also.contains(byte) {
            encoded.push(char::from(*byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

fn escape(text: &str, quotes: bool) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if quotes { text.replace('"', "&quot;") } else { text }
}

/// `25-Nov-2026 17:50`, as in nginx, or `2026-11-25 17:50`, as in Apache, made from an HTTP date.
fn minute(time: SystemTime, between: &str) -> String {
    let text = httpdate::fmt_http_date(time);
    let (day, month, year, clock) = (&text[5..7], &text[8..11], &text[12..16], &text[17..22]);
    if between == "-" {
        return format!("{day}-{month}-{year} {clock}");
    }
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let number = months.iter().position(|name| *name == month).map_or(0, |at| at + 1);
    format!("{year}-{number:02}-{day} {clock}")
}

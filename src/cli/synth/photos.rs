//! The photographs from which a dataset is made: found, decoded and kept at several scales.

use base::error::{Error, Result};
use pixels::decode::{Decoder, Planes, Region};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Red, green, blue (0 to 255) and an unused fourth lane, so that a pixel is one SIMD vector.
pub(crate) type Pixel = [f32; 4];

pub(crate) struct PixelGrid {
    pub width: usize,
    pub height: usize,
    pub pixels: Vec<Pixel>,
}

/// A photograph at full size and repeatedly halved, for resampling without aliasing.
pub(crate) struct Photo {
    pub path: PathBuf,
    /// The levels: full size first, each next level half as large.
    pub levels: Vec<PixelGrid>,
}

/// Photographs (not diagrams or text) among the images that scikit-image and scikit-learn ship in their wheels.
const SHIPPED: &[(&str, &[&str])] = &[
    (
        "skimage/data",
        &[
            "astronaut.png",
            "chelsea.png",
            "coffee.png",
            "rocket.jpg",
            "retina.jpg",
            "hubble_deep_field.jpg",
            "motorcycle_left.png",
            "motorcycle_right.png",
            "camera.png",
            "coins.png",
            "gravel.png",
            "grass.png",
            "brick.png",
        ],
    ),
    ("sklearn/datasets/images", &["china.jpg", "flower.jpg"]),
];

/// The smallest allowed side in pixels. Smaller photographs cannot be cropped.
const SMALLEST: usize = 64;

/// Finds the photographs below `directories`, or the shipped photographs if no directories are given. They are sorted,
/// so that draws from them are the same everywhere.
pub(crate) fn find(directories: &[PathBuf]) -> Result<Vec<PathBuf>> {
    if directories.is_empty() {
        return shipped();
    }
    let mut found = Vec::new();
    for directory in directories {
        let before = found.len();
        walk(directory, &mut found)?;
        if found.len() == before {
            return Err(Error::config(
                "photos",
                format!("{} contains no .jpg, .jpeg or .png file", directory.display()),
            ));
        }
    }
    found.sort();
    Ok(found)
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(directory).map_err(|error| Error::io("list", directory, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| Error::io("list", directory, error))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(|error| Error::io("stat", &path, error))?;
        if kind.is_dir() {
            walk(&path, found)?;
        } else if extension_is(&path, &["jpg", "jpeg", "png"]) {
            found.push(path);
        }
    }
    Ok(())
}

fn extension_is(path: &Path, names: &[&str]) -> bool {
    path.extension().and_then(OsStr::to_str).is_some_and(|e| names.iter().any(|n| e.eq_ignore_ascii_case(n)))
}

fn shipped() -> Result<Vec<PathBuf>> {
    for python in pythons() {
        let found: Vec<PathBuf> = site_directories(&python)
            .iter()
            .flat_map(|site| {
                SHIPPED.iter().flat_map(move |(folder, names)| {
                    names.iter().map(move |name| site.join(folder).join(name))
                })
            })
            .filter(|path| path.is_file())
            .collect();
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Err(Error::config(
        "photos",
        "no photographs found: install those of scikit-image and scikit-learn with \
         `python3 -m pip install scikit-image scikit-learn`, or pass a directory of photographs with --photos DIR",
    ))
}

/// The Python interpreters that may have the packages: the interpreter that runs this program, the interpreter in the
/// directory of this program, the interpreter of the active environment, and the interpreter on the search path.
fn pythons() -> Vec<PathBuf> {
    // The console script sets this variable, because the executable of its process is the interpreter outside the
    // environment.
    let console = std::env::var_os("FORELOAD_PYTHON").map(PathBuf::from);
    let sibling = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("python3")));
    let active = std::env::var_os("VIRTUAL_ENV").map(|root| PathBuf::from(root).join("bin/python3"));
    let mut pythons: Vec<PathBuf> =
        [console, sibling, active].into_iter().flatten().filter(|p| p.is_file()).collect();
    pythons.push("python3".into());
    pythons
}

/// The directories in which `python` finds scikit-image and scikit-learn. Does not import them.
fn site_directories(python: &Path) -> Vec<PathBuf> {
    const ASK: &str = "import importlib.util as u, os\n\
        for name in 'skimage', 'sklearn':\n    \
            spec = u.find_spec(name)\n    \
            if spec and spec.origin: print(os.path.dirname(os.path.dirname(spec.origin)))";
    let answer =
        Command::new(python).args(["-I", "-c", ASK]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let Ok(answer) = answer else { return Vec::new() };
    let mut sites: Vec<PathBuf> =
        String::from_utf8_lossy(&answer.stdout).lines().map(PathBuf::from).collect();
    sites.sort();
    sites.dedup();
    sites
}

impl Photo {
    /// Reads and decodes a PNG or JPEG file. Returns `None` if the image is too small for crops.
    pub(crate) fn load(path: &Path) -> Result<Option<Self>> {
        let bytes = std::fs::read(path).map_err(|error| Error::io("read", path, error))?;
        let decoded = if bytes.starts_with(b"\x89PNG") { decode_png(&bytes) } else { decode_jpeg(&bytes) };
        let full = decoded.map_err(|message| Error::dataset(path, message))?;
        if full.width.min(full.height) < SMALLEST {
            return Ok(None);
        }
        let mut levels = vec![full];
        while let Some(next) =
            levels.last().filter(|l| l.width.min(l.height) >= 2 * SMALLEST).map(PixelGrid::halved)
        {
            levels.push(next);
        }
        Ok(Some(Self { path: path.to_owned(), levels }))
    }
}

impl PixelGrid {
    /// Makes pixels from interleaved 8-bit values, `channels` of them per pixel: 1 gray, 2 gray + alpha, 3 RGB, 4 RGB +
    /// alpha.
    fn from_bytes(bytes: &[u8], width: usize, height: usize, channels: usize) -> Self {
        let pixels = bytes.chunks_exact(channels).take(width * height);
        let pixels = pixels.map(|p| {
            let rgb = if channels >= 3 { [p[0], p[1], p[2]] } else { [p[0]; 3] };
            [f32::from(rgb[0]), f32::from(rgb[1]), f32::from(rgb[2]), 0.0]
        });
        Self { width, height, pixels: pixels.collect() }
    }

    fn halved(&self) -> Self {
        let (width, height) = (self.width / 2, self.height / 2);
        let mut pixels = Vec::with_capacity(width * height);
        for y in 0..height {
            let upper = &self.pixels[2 * y * self.width..][..2 * width];
            let lower = &self.pixels[(2 * y + 1) * self.width..][..2 * width];
            pixels.extend(upper.chunks_exact(2).zip(lower.chunks_exact(2)).map(|(a, b)| {
                std::array::from_fn(|lane| 0.25 * (a[0][lane] + a[1][lane] + b[0][lane] + b[1][lane]))
            }));
        }
        Self { width, height, pixels }
    }
}

fn decode_png(bytes: &[u8]) -> Result<PixelGrid, String> {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(|e| format!("not a PNG image: {e}"))?;
    let mut pixels = vec![0; reader.output_buffer_size().ok_or("the PNG image is too large")?];
    let frame = reader.next_frame(&mut pixels).map_err(|e| format!("corrupt PNG image: {e}"))?;
    Ok(PixelGrid::from_bytes(
        &pixels,
        frame.width as usize,
        frame.height as usize,
        frame.color_type.samples(),
    ))
}

fn decode_jpeg(bytes: &[u8]) -> Result<PixelGrid, String> {
    let (mut planes, whole) = (Planes::default(), |width, height| Region { x: 0, y: 0, width, height });
    Decoder::new(u64::MAX).decode(bytes, whole, &mut planes).map_err(|e| e.to_string())?;
    let (width, height) = (planes.image_width as usize, planes.image_height as usize);
    Ok(PixelGrid::from_bytes(&planes.rgb(), width, height, 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_averages_four_pixels() {
        let plane = PixelGrid::from_bytes(&[0, 4, 9, 8, 12, 9], 3, 2, 1).halved();
        assert_eq!((plane.width, plane.height), (1, 1));
        assert_eq!(plane.pixels, [[6.0, 6.0, 6.0, 0.0]]);
    }

    #[test]
    fn a_directory_without_photographs_is_named() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("notes.txt"), "").unwrap();
        let error = find(&[directory.path().to_owned()]).unwrap_err().to_string();
        assert!(error.contains("contains no .jpg") && error.contains("config: photos"), "{error}");
    }
}

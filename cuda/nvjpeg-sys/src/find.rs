//! Finds nvJPEG: already loaded, on the loader's path, in Python's packages, or in a CUDA toolkit.

use std::env;
use std::ffi::{OsStr, c_int};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::os::unix::{Library as Dynamic, RTLD_LOCAL, RTLD_NOW};

use crate::result::Result;
use crate::sys::{self, libraryPropertyType_t as Property};

/// The major versions whose functions and types are those of [`sys`], the newest first.
const MAJORS: [u32; 2] = [13, 12];

/// The flag that opens a library only if it is loaded already (`RTLD_NOLOAD` of glibc and musl).
const LOADED_ONLY: c_int = 4;

/// A version of nvJPEG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The major version, which is that of CUDA.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
    /// The patch level.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Where to look for nvJPEG, in addition to the usual places.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Directories of Python packages (`site-packages`).
    pub packages: Vec<PathBuf>,
    /// The newest major version of CUDA that the driver supports; newer libraries are skipped.
    pub newest: Option<u32>,
}

/// A loaded nvJPEG. The library stays loaded until this value is dropped.
pub struct Library {
    sys: sys::NvJpeg,
    version: Version,
    path: PathBuf,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nvJPEG {} ({})", self.version, self.path.display())
    }
}

/// The error that no usable nvJPEG was found, with the reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    /// The libraries that were found but cannot be used, and why.
    pub rejected: Vec<String>,
    newest: Option<u32>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let package = if self.newest == Some(12) { "nvidia-nvjpeg-cu12" } else { "nvidia-nvjpeg" };
        write!(f, "nvJPEG was not found: pip install {package}")?;
        if !self.rejected.is_empty() {
            write!(f, " (passed over: {})", self.rejected.join("; "))?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}

impl Library {
    /// Loads the first nvJPEG that can be used, in this order: an nvJPEG that is already loaded; one on the loader's
    /// path; those of Python packages (the given directories, the directory of this program's package, its virtual
    /// environment). The last one is that of `CUDA_HOME` or `CUDA_PATH`.
    ///
    /// # Errors
    /// The message says what to install, and which libraries were found but are too old, too new or cannot be loaded.
    pub fn load(search: &Search) -> Result<Arc<Self>, LoadError> {
        let names: Vec<String> = MAJORS
            .iter()
            .filter(|&&major| search.newest.is_none_or(|newest| major <= newest))
            .map(|major| format!("libnvjpeg.so.{major}"))
            .chain([String::from("libnvjpeg.so")])
            .collect();
        let mut rejected = Vec::new();
        let mut attempt = |path: &Path, flags| match Self::open(path, flags, search.newest) {
            Ok(library) => Some(Arc::new(library)),
            Err(Some(reason)) => {
                rejected.push(reason);
                None
            }
            Err(None) => None,
        };
        for name in &names {
            if let Some(library) = attempt(Path::new(name), RTLD_NOW | RTLD_LOCAL | LOADED_ONLY) {
                return Ok(library);
            }
        }
        for name in &names {
            if let Some(library) = attempt(Path::new(name), RTLD_NOW | RTLD_LOCAL) {
                return Ok(library);
            }
        }
        for directory in directories(search) {
            for path in names.iter().map(|name| directory.join(name)).filter(|path| path.exists()) {
                if let Some(library) = attempt(&path, RTLD_NOW | RTLD_LOCAL) {
                    return Ok(library);
                }
            }
        }
        Err(LoadError { rejected, newest: search.newest })
    }

    /// Loads the library at `path`. `Err(None)` means that no library is there; any other error says why it cannot be
    /// used.
    fn open(path: &Path, flags: c_int, newest: Option<u32>) -> Result<Self, Option<String>> {
        // SAFETY: loading runs the library's initialisers; nvJPEG's are meant to be run by `dlopen` at any time.
        let dynamic = unsafe { Dynamic::open(Some(path), flags) };
        let dynamic = dynamic.map_err(|error| {
            // For a bare name, the loader's error only says that the library does not exist.
            path.is_absolute().then(|| in_full(&error))
        })?;
        let reject = |reason: String| Some(format!("{}: {reason}", path.display()));
        // SAFETY: the functions are declared as in the header of a version whose declarations hold for all of MAJORS;
        // other versions are refused below before anything but `nvjpegGetProperty` is called.
        let sys = unsafe { sys::NvJpeg::from_library(dynamic) };
        let sys = sys.map_err(|error| reject(in_full(&error)))?;
        let mut library =
            Self { sys, version: Version { major: 0, minor: 0, patch: 0 }, path: path.to_owned() };
        library.version = library.property().map_err(|error| reject(error.to_string()))?;
        if let Some(origin) =
            library.sys.nvjpegGetProperty.as_ref().ok().and_then(|f| file_of(*f as *const ()))
        {
            library.path = origin;
        }
        let major = library.version.major;
        if !MAJORS.contains(&major) {
            return Err(reject(format!("version {} is none of {MAJORS:?}", library.version)));
        }
        if let Some(newest) = newest.filter(|&newest| major > newest) {
            return Err(reject(format!(
                "version {} needs a driver for CUDA {major}, not {newest}",
                library.version
            )));
        }
        Ok(library)
    }

    fn property(&self) -> Result<Version> {
        let get = |property| {
            let mut value = 0;
            // SAFETY: the pointer is valid for the call.
            unsafe { crate::call!(self, nvjpegGetProperty(property, &mut value)) }?;
            Ok(value.unsigned_abs())
        };
        Ok(Version {
            major: get(Property::MAJOR_VERSION)?,
            minor: get(Property::MINOR_VERSION)?,
            patch: get(Property::PATCH_LEVEL)?,
        })
    }

    /// The raw functions. A function that this version lacks is `Err`.
    pub fn sys(&self) -> &sys::NvJpeg {
        &self.sys
    }

    /// The version of the library.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The path of the library's file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether the driver's `libnvcuvid.so.1` can be loaded, which nvJPEG loads to use a decoding engine.
pub fn has_video_driver() -> bool {
    // SAFETY: as programs that decode video load it; its initialisers start nothing.
    unsafe { Dynamic::open(Some("libnvcuvid.so.1"), RTLD_NOW | RTLD_LOCAL) }.is_ok()
}

/// The message of an error's cause, or of the error itself.
fn in_full(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| cause.to_string())
}

/// The directories that may hold nvJPEG, in addition to those of the loader.
fn directories(search: &Search) -> Vec<PathBuf> {
    let mut packages = search.packages.clone();
    // An extension module is in its package's directory, whose parent also holds the other packages.
    if let Some(own) = file_of(directories as *const ()) {
        packages.extend(own.parent().and_then(Path::parent).map(Path::to_owned));
    }
    let environments = env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let program = env::current_exe().ok().and_then(|path| Some(path.parent()?.parent()?.to_owned()));
    for environment in environments.into_iter().chain(program) {
        let entries = environment.join("lib").read_dir().into_iter().flatten().flatten();
        let mut pythons: Vec<_> = entries
            .map(|entry| entry.path())
            .filter(|path| path.file_name().and_then(OsStr::to_str).is_some_and(|n| n.starts_with("python3")))
            .collect();
        pythons.sort();
        packages.extend(pythons.into_iter().map(|python| python.join("site-packages")));
    }
    let mut directories = Vec::new();
    for package in packages {
        // The wheels of CUDA 13 and of CUDA 12 put it into these directories.
        directories.push(package.join("nvidia/cu13/lib"));
        directories.push(package.join("nvidia/nvjpeg/lib"));
    }
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(home) = env::var_os(variable).map(PathBuf::from) {
            directories.push(home.join("lib64"));
            directories.push(home.join("lib"));
        }
    }
    let mut seen = Vec::new();
    directories.retain(|directory| {
        let new = !seen.contains(directory);
        seen.push(directory.clone());
        new
    });
    directories
}

/// The file that the code at an address was loaded from.
fn file_of(address: *const ()) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let address = address as usize;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let within = usize::from_str_radix(start, 16).ok()? <= address
            && address < usize::from_str_radix(end, 16).ok()?;
        // The fields are permissions, offset, device, inode, then the path, which may hold spaces.
        let path = rest.splitn(5, ' ').nth(4)?.trim_start();
        (within && path.starts_with('/')).then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_knows_its_file() {
        let own = file_of(code_knows_its_file as *const ()).unwrap();
        assert_eq!(own, env::current_exe().unwrap());
    }

    #[test]
    fn packages_are_searched_in_order_and_once() {
        let search = Search { packages: vec!["one".into(), "two".into(), "one".into()], newest: None };
        let found = directories(&search);
        assert!(found.starts_with(&[
            "one/nvidia/cu13/lib".into(),
            "one/nvidia/nvjpeg/lib".into(),
            "two/nvidia/cu13/lib".into(),
        ]));
        assert_eq!(found.iter().filter(|path| path.starts_with("one")).count(), 2);
    }

    #[test]
    fn what_cannot_serve_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let lib = directory.path().join("nvidia/cu13/lib");
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::write(lib.join("libnvjpeg.so.13"), "no library").unwrap();
        let search = Search { packages: vec![directory.path().to_owned()], newest: Some(13) };
        match Library::load(&search) {
            Ok(library) => println!("skipped: this machine has {library:?}"),
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.starts_with("nvJPEG was not found: pip install nvidia-nvjpeg (passed over: "),
                    "{text}"
                );
                assert!(text.contains("libnvjpeg.so.13"), "{text}");
            }
        }
        let older = LoadError { rejected: Vec::new(), newest: Some(12) };
        assert_eq!(older.to_string(), "nvJPEG was not found: pip install nvidia-nvjpeg-cu12");
    }
}

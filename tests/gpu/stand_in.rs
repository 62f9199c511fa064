//! The stand-ins for NVIDIA's libraries. They are built with the tests that depend on them, and loaded into a test or
//! put on the library path of a child process.

#![allow(dead_code, reason = "not every test program needs all of it")]

use foreload::testing::pipeline::release_gpus;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The folder that holds the stand-in crate `package` under the file name `library`, for `LD_LIBRARY_PATH`. It is made
/// once.
pub fn folder(package: &str, library: &str) -> PathBuf {
    // Cargo builds a program's dependencies into the program's own directory: target/debug/deps.
    let program = std::env::current_exe().unwrap();
    let built = program.parent().unwrap();
    let folder = built.parent().unwrap().join("stand-in");
    std::fs::create_dir_all(&folder).unwrap();
    // Rename the complete file into place, because other test programs may be loading it.
    let temporary = folder.join(format!("{library}.{}", std::process::id()));
    std::fs::copy(built.join(format!("lib{}.so", package.replace('-', "_"))), &temporary).unwrap();
    std::fs::rename(temporary, folder.join(library)).unwrap();
    folder
}

/// The folder with the stand-in's `libcuda.so.1`.
pub fn cuda_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| folder("cuda-stand-in", "libcuda.so.1"))
}

/// The folder with the stand-in's `libnvjpeg.so.13`: the same folder.
pub fn nvjpeg_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| folder("nvjpeg-stand-in", "libnvjpeg.so.13"))
}

/// The stand-in for the driver, loaded into this process as its `libcuda.so.1`.
///
/// Only one test holds it at a time. When the test drops it, there must be no violation and no leak.
pub struct Cuda {
    library: &'static Library,
    expects: bool,
    _alone: MutexGuard<'static, ()>,
}

/// Waits until no other test holds the stand-in, then loads it.
pub fn cuda() -> Cuda {
    static ALONE: Mutex<()> = Mutex::new(());
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let library = LIBRARY.get_or_init(|| {
        let path = cuda_folder().join("libcuda.so.1");
        // SAFETY: a library of our own, whose initialisers do nothing.
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.unwrap()
    });
    let cuda = Cuda { library, expects: false, _alone: alone };
    cuda.call::<extern "C" fn(u32)>("standin_abort")(0);
    // Decoders of a failed test may still be cached.
    release_gpus();
    cuda.reset();
    cuda
}

/// Loads the stand-in for nvJPEG. The test must hold the stand-in for the driver.
pub fn nvjpeg(_cuda: &Cuda) -> Nvjpeg {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let path = nvjpeg_folder().join("libnvjpeg.so.13");
        // SAFETY: a library of our own, whose initialisers do nothing.
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.unwrap()
    });
    let nvjpeg = Nvjpeg { library };
    nvjpeg.reset();
    nvjpeg
}

/// Both stand-ins, for a test that calls both libraries.
pub fn both() -> (Cuda, Nvjpeg) {
    let cuda = cuda();
    let nvjpeg = nvjpeg(&cuda);
    (cuda, nvjpeg)
}

/// The stand-in for nvJPEG: after it is loaded, it is the `libnvjpeg.so.13` of this process.
pub struct Nvjpeg {
    library: &'static Library,
}

impl Nvjpeg {
    fn call<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the types below are those of the stand-in's `control.rs`.
        unsafe { *self.library.get::<F>(name.as_bytes()).unwrap() }
    }

    /// Makes the `nth` call of a function from now on (1 is the next) fail with `status`; 0 means "execution failed".
    pub fn fail(&self, name: &str, nth: u64, status: u32) {
        let name = CString::new(name).unwrap();
        self.call::<extern "C" fn(*const c_char, u64, u32)>("nvjpeg_standin_fail")(
            name.as_ptr(),
            nth,
            status,
        );
    }

    /// How often a function was called.
    pub fn calls(&self, name: &str) -> u64 {
        let name = CString::new(name).unwrap();
        self.call::<extern "C" fn(*const c_char) -> u64>("nvjpeg_standin_calls")(name.as_ptr())
    }

    /// Turns on these knobs, separated by commas, and no others; `control.rs` lists them.
    pub fn knobs(&self, knobs: &str) {
        let knobs = CString::new(knobs).unwrap();
        self.call::<extern "C" fn(*const c_char)>("nvjpeg_standin_knobs")(knobs.as_ptr());
    }

    /// Sets the costs of calls, in microseconds, as a list separated by commas; `costs.rs` has the names.
    pub fn costs(&self, costs: &str) {
        let costs = CString::new(costs).unwrap();
        self.call::<extern "C" fn(*const c_char)>("nvjpeg_standin_costs")(costs.as_ptr());
    }

    /// The microseconds that were spent on a kind of cost since the costs were set.
    pub fn spent(&self, name: &str) -> u64 {
        let name = CString::new(name).unwrap();
        self.call::<extern "C" fn(*const c_char) -> u64>("nvjpeg_standin_spent")(name.as_ptr())
    }

    /// The number of objects that exist.
    pub fn objects(&self) -> u64 {
        self.call::<extern "C" fn() -> u64>("nvjpeg_standin_objects")()
    }

    /// Resets pending faults, calls, knobs and costs.
    pub fn reset(&self) {
        self.costs("");
        self.call::<extern "C" fn()>("nvjpeg_standin_reset")();
    }
}

impl Cuda {
    fn call<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the types below are those of the stand-in's `control.rs`.
        unsafe { *self.library.get::<F>(name.as_bytes()).unwrap() }
    }

    /// A function of the driver, as other code of the process calls it.
    pub fn driver<F: Copy>(&self, name: &str) -> F {
        self.call(name)
    }

    fn text(&self, name: &str) -> Vec<String> {
        let mut text = vec![0u8; 1 << 16];
        let write = self.call::<extern "C" fn(*mut c_char, usize) -> u64>(name);
        write(text.as_mut_ptr().cast(), text.len());
        let end = text.iter().position(|byte| *byte == 0).unwrap();
        String::from_utf8_lossy(&text[..end]).lines().map(str::to_owned).collect()
    }

    fn number(&self, name: &str, of: &str) -> u64 {
        let of = CString::new(of).unwrap();
        self.call::<extern "C" fn(*const c_char) -> u64>(name)(of.as_ptr())
    }

    /// Makes the `nth` call of a driver function from now on (1 is the next) fail with `status`; 0 stands for a
    /// suitable status.
    pub fn fail(&self, name: &str, nth: u64, status: u32) {
        let name = CString::new(name).unwrap();
        self.call::<extern "C" fn(*const c_char, u64, u32)>("standin_fail")(name.as_ptr(), nth, status);
    }

    /// The violations since the last reset, which the test expects.
    pub fn violations(&mut self) -> Vec<String> {
        self.expects = true;
        self.text("standin_violations")
    }

    /// Makes violations abort the process, as they do by default in other programs.
    pub fn abort_on_violation(&self) {
        self.call::<extern "C" fn(u32)>("standin_abort")(1);
    }

    /// The allocations that were not freed.
    pub fn leaks(&self) -> Vec<String> {
        self.text("standin_leaks")
    }

    /// Waits until all queued work is done, but not as a wait of the host: later accesses are still unordered.
    pub fn drain(&self) {
        self.text("standin_violations");
    }

    /// How often a function of the driver was called.
    pub fn calls(&self, name: &str) -> u64 {
        self.number("standin_calls", name)
    }

    /// A counter of `control.rs`, since the last reset.
    pub fn count(&self, name: &str) -> u64 {
        self.number("standin_count", name)
    }

    /// Waits for all streams; resets violations, pending faults and counters.
    pub fn reset(&self) {
        self.call::<extern "C" fn()>("standin_reset")();
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        release_gpus();
        if !self.expects {
            let violations = self.text("standin_violations");
            assert!(violations.is_empty(), "{}", violations.join("\n"));
        }
        let leaks = self.leaks();
        assert!(leaks.is_empty(), "not given back: {}", leaks.join(", "));
    }
}

//! Compiled kernels: choice of the image for a device, lookup of functions, and launches with checked arguments.

use super::device::{Capability, GpuDevice};
use super::driver::call;
use super::stream::Stream;
use base::error::{Error, Result};
use cudarc::driver::sys;
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// A compiled image of the kernels for one family of devices.
#[derive(Debug, Clone, Copy)]
pub enum KernelImage {
    /// Machine code. It runs on devices with the same major capability and an equal or higher minor capability.
    Cubin(Capability, &'static [u8]),
    /// PTX. The driver compiles it for devices of this capability or any higher capability.
    Ptx(Capability, &'static str),
}

impl KernelImage {
    /// How well the image fits a device; lower is better. Exact machine code comes first, then machine code for the
    /// nearest lower minor capability, then PTX.
    fn rank(&self, device: Capability) -> Option<(u32, u32)> {
        match self {
            Self::Cubin(own, _) if own.major == device.major && own.minor <= device.minor => {
                Some((0, device.minor - own.minor))
            }
            Self::Ptx(own, _) if *own <= device => {
                Some((1, 100 * (device.major - own.major) + device.minor.abs_diff(own.minor)))
            }
            _ => None,
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Cubin(Capability { major, minor }, _) => format!("sm_{major}{minor}"),
            Self::Ptx(Capability { major, minor }, _) => format!("compute_{major}{minor} (PTX)"),
        }
    }
}

/// A loaded image. Clones share the module.
#[derive(Clone)]
pub struct Module {
    inner: Arc<ModuleInner>,
}

struct ModuleInner {
    device: GpuDevice,
    module: sys::CUmodule,
    image: String,
}

// SAFETY: a module is a handle that the driver lets any thread use.
unsafe impl Send for ModuleInner {}
// SAFETY: the driver lets several threads use the module at a time.
unsafe impl Sync for ModuleInner {}

/// Errors after which another image may still work: CUDA_ERROR_INVALID_IMAGE, _NO_BINARY_FOR_GPU, _INVALID_PTX,
/// _JIT_COMPILER_NOT_FOUND, _UNSUPPORTED_PTX_VERSION, _JIT_COMPILATION_DISABLED, _INVALID_SOURCE, _NOT_SUPPORTED.
const TRY_NEXT: [u32; 8] = [200, 209, 218, 221, 222, 223, 300, 801];

impl Module {
    /// Loads the image that fits `device` best among the images that the driver accepts.
    pub fn load(device: &GpuDevice, images: &[KernelImage]) -> Result<Self> {
        let capability = device.info().capability;
        let mut suiting: Vec<_> =
            images.iter().filter_map(|image| Some((image.rank(capability)?, image))).collect();
        suiting.sort_by_key(|(rank, _)| *rank);
        let bound = device.bind()?;
        let driver = bound.driver();
        let mut refused = None;
        for (_, image) in suiting {
            let text = match image {
                KernelImage::Ptx(_, text) => CString::new(*text)
                    .map_err(|_| Error::Internal("the PTX image contains a NUL byte".to_owned()))?,
                KernelImage::Cubin(..) => CString::default(),
            };
            let data: *const c_void = match image {
                KernelImage::Ptx(..) => text.as_ptr().cast(),
                KernelImage::Cubin(_, bytes) => bytes.as_ptr().cast(),
            };
            let mut module = std::ptr::null_mut();
            // SAFETY: the data is an ELF image that states its own length, or text that ends in NUL. Both outlive the
            // call.
            let status = unsafe { (driver.functions.cuModuleLoadData)(&mut module, data) };
            match driver.check("cuModuleLoadData", status) {
                Ok(()) => {
                    let inner = ModuleInner { device: device.clone(), module, image: image.name() };
                    return Ok(Self { inner: Arc::new(inner) });
                }
                Err(error) if TRY_NEXT.contains(&status) => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(refused.unwrap_or_else(|| {
            let has = images.iter().map(KernelImage::name).collect::<Vec<_>>().join(", ");
            let own = &device.info().name;
            Error::Unavailable(format!(
                "no kernels for {own} (compute capability {capability}): this build has {has}"
            ))
        }))
    }

    /// The name of the loaded image: `sm_90`, `compute_80 (PTX)`.
    pub fn image(&self) -> &str {
        &self.inner.image
    }

    /// Finds the kernel `name`, whose parameters have these sizes in bytes. A driver for CUDA 12.4 or newer reports the
    /// sizes that the image has; if they differ, the call fails with [`Error::Internal`].
    pub fn function(&self, name: &'static str, parameters: &[usize]) -> Result<Function> {
        let bound = self.inner.device.bind()?;
        let driver = bound.driver();
        let symbol =
            CString::new(name).map_err(|_| Error::Internal(format!("invalid kernel name {name:?}")))?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the pointers are valid for the call, and the module exists.
        unsafe { call!(driver, cuModuleGetFunction(&mut function, self.inner.module, symbol.as_ptr())) }?;
        if let Some(info) = driver.functions.cuFuncGetParamInfo {
            let size = |index| {
                let (mut offset, mut size) = (0, 0);
                // SAFETY: the pointers are valid for the call. An index that is too high gives an error, which ends the
                // list.
                (unsafe { info(function, index, &mut offset, &mut size) } == 0).then_some(size)
            };
            let seen: Vec<usize> = (0..).map_while(size).collect();
            // An empty list means that the driver reports no sizes.
            if !seen.is_empty() && seen != parameters {
                return Err(Error::Internal(format!(
                    "kernel {name} has parameters of {seen:?} bytes, expected {parameters:?}"
                )));
            }
        }
        Ok(Function { module: self.clone(), function, name, parameters: parameters.to_vec() })
    }
}

impl Drop for ModuleInner {
    fn drop(&mut self) {
        if let Ok(bound) = self.device.bind() {
            // CUDA does not document that unloading waits for launches that are queued.
            // SAFETY: the call has no arguments, and the context is current through `bound`.
            let _ = unsafe { call!(bound.driver(), cuCtxSynchronize()) };
            // SAFETY: `self` owns the module. No function of the module and no launch of such a function exists any
            // more.
            let _ = unsafe { call!(bound.driver(), cuModuleUnload(self.module)) };
        }
    }
}

/// One argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub enum Arg<'a> {
    /// An address on the device, or 0.
    Pointer(u64),
    /// An `unsigned int`.
    U32(u32),
    /// The bytes of a structure.
    Bytes(&'a [u8]),
}

impl Arg<'_> {
    fn raw(&self) -> (*const c_void, usize) {
        match self {
            Self::Pointer(value) => ((&raw const *value).cast(), 8),
            Self::U32(value) => ((&raw const *value).cast(), 4),
            Self::Bytes(bytes) => (bytes.as_ptr().cast(), bytes.len()),
        }
    }
}

/// A kernel of a [`Module`].
#[derive(Clone)]
pub struct Function {
    module: Module,
    function: sys::CUfunction,
    name: &'static str,
    parameters: Vec<usize>,
}

// SAFETY: a function is a handle that the driver lets any thread use.
unsafe impl Send for Function {}
// SAFETY: the driver lets several threads use the function at a time.
unsafe impl Sync for Function {}

impl Function {
    /// Queues a launch on `stream`: `grid` blocks of `block` threads, each block with `shared` bytes of shared memory.
    /// The arguments must have the sizes that [`Module::function`] was given.
    ///
    /// # Safety
    ///
    /// All memory that the kernel accesses through its arguments must be device memory that stays allocated until the
    /// stream has passed the launch. Other users of that memory must be ordered with `stream` by events.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        arguments: &[Arg<'_>],
    ) -> Result<()> {
        let sizes = arguments.iter().map(|argument| argument.raw().1);
        if !sizes.clone().eq(self.parameters.iter().copied()) {
            let (sizes, name, own) = (sizes.collect::<Vec<_>>(), self.name, &self.parameters);
            return Err(Error::Internal(format!(
                "kernel {name} takes parameters of {own:?} bytes, not {sizes:?}"
            )));
        }
        if grid.contains(&0) {
            return Ok(());
        }
        let device = &self.module.inner.device;
        if !device.same(stream.device()) {
            return Err(Error::Internal(format!(
                "kernel {} was launched on a stream of another device",
                self.name
            )));
        }
        let bound = device.bind()?;
        let mut pointers: Vec<*mut c_void> =
            arguments.iter().map(|argument| argument.raw().0.cast_mut()).collect();
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        let (driver, function, stream) = (bound.driver(), self.function, stream.raw());
        let (args, none) = (pointers.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the number and sizes of the arguments match the kernel, and the driver copies the arguments before it
        // returns. The caller guarantees the memory that they point to.
        unsafe { call!(driver, cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, args, none)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_machine_code_comes_first_and_ptx_last() {
        let capability = |major, minor| Capability { major, minor };
        let images = [
            KernelImage::Ptx(capability(8, 0), ""),
            KernelImage::Cubin(capability(8, 0), &[]),
            KernelImage::Cubin(capability(8, 6), &[]),
            KernelImage::Cubin(capability(8, 9), &[]),
            KernelImage::Cubin(capability(9, 0), &[]),
        ];
        let order = |device: Capability| {
            let mut suiting: Vec<_> =
                images.iter().filter_map(|image| Some((image.rank(device)?, image.name()))).collect();
            suiting.sort();
            suiting.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert_eq!(order(capability(8, 0)), ["sm_80", "compute_80 (PTX)"]);
        assert_eq!(order(capability(8, 7)), ["sm_86", "sm_80", "compute_80 (PTX)"]);
        assert_eq!(order(capability(9, 0)), ["sm_90", "compute_80 (PTX)"]);
        assert_eq!(order(capability(11, 0)), ["compute_80 (PTX)"]);
        assert!(order(capability(7, 5)).is_empty());
    }

    #[test]
    fn arguments_have_the_sizes_of_their_c_types() {
        let structure = [0; 40];
        let arguments = [Arg::Pointer(1), Arg::U32(1), Arg::Bytes(&structure)];
        assert_eq!(arguments.map(|argument| argument.raw().1), [8, 4, 40]);
    }
}

//! A device and its primary context, which is shared with torch and every other user of the CUDA runtime API.

use super::driver::{Driver, call, driver};
use super::thread::{self, Relaxed};
use base::error::{Error, Result};
use cudarc::driver::sys;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::sync::Arc;

/// Compute capability, major and minor: (9, 0) is Hopper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Capability {
    /// The family: 8 for Ampere and Ada, 9 for Hopper, 10 and 12 for Blackwell.
    pub major: u32,
    /// The revision within the family.
    pub minor: u32,
}

/// The lowest capability that kernels are compiled for.
const OLDEST: Capability = Capability { major: 8, minor: 0 };

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Properties of a device. They can be read without opening the device.
#[derive(Debug, Clone, serde::Serialize)]
pub struct DeviceInfo {
    /// The device's index among the devices that `CUDA_VISIBLE_DEVICES` selects.
    pub ordinal: u32,
    /// The driver's name for the device: "NVIDIA H200".
    pub name: String,
    /// The compute capability.
    pub capability: Capability,
    /// The bytes of memory on the device.
    pub memory: u64,
    /// The number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Why Foreload cannot use the device, as a sentence; `None` if it can.
    pub problem: Option<String>,
}

impl DeviceInfo {
    pub(super) fn read(driver: &Driver, ordinal: u32) -> Result<(Self, sys::CUdevice)> {
        use sys::CUdevice_attribute as Attribute;
        let mut device = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(driver, cuDeviceGet(&mut device, ordinal as c_int)) }?;
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: the pointer is valid for the call, and the driver returned the device.
            unsafe { call!(driver, cuDeviceGetAttribute(&mut value, attribute, device)) }?;
            Ok::<u32, Error>(u32::try_from(value).unwrap_or(0))
        };
        let mut name = [0; 256];
        // SAFETY: the buffer has the given length; the driver ends the name with NUL.
        unsafe { call!(driver, cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int - 1, device)) }?;
        // SAFETY: at least the last byte is NUL.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let mut memory = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(driver, cuDeviceTotalMem_v2(&mut memory, device)) }?;
        let capability = Capability {
            major: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            minor: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        };
        let prohibited = sys::CUcomputemode::CU_COMPUTEMODE_PROHIBITED as u32;
        let problem = if capability < OLDEST {
            Some(format!("its compute capability is {capability}, but {OLDEST} or newer is required"))
        } else if attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 0 {
            Some("it does not support memory pools (cuMemPoolCreate), which are required".to_owned())
        } else if attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)? == prohibited {
            Some("its compute mode is \"prohibited\": allow it with `nvidia-smi -c DEFAULT`".to_owned())
        } else {
            None
        };
        let multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        Ok((Self { ordinal, name, capability, memory: memory as u64, multiprocessors, problem }, device))
    }
}

/// An opened device. Clones share the device. Its primary context is retained until the last clone and the last object
/// on the device are dropped.
#[derive(Clone)]
pub struct GpuDevice {
    inner: Arc<DeviceInner>,
}

struct DeviceInner {
    driver: &'static Driver,
    device: sys::CUdevice,
    context: sys::CUcontext,
    info: DeviceInfo,
}

// SAFETY: the context is a handle that the driver lets any thread use.
unsafe impl Send for DeviceInner {}
// SAFETY: the driver lets several threads use the context at a time.
unsafe impl Sync for DeviceInner {}

impl GpuDevice {
    /// Opens the device with index `ordinal` among the devices that `CUDA_VISIBLE_DEVICES` selects.
    ///
    /// The first use in a process takes some hundred milliseconds and some hundred megabytes of device memory, unless
    /// torch has already opened the device.
    ///
    /// # Errors
    /// [`Error::Unavailable`] says why the device does not exist or cannot be used.
    pub fn open(ordinal: u32) -> Result<Self> {
        let driver = driver()?;
        let count = count(driver)?;
        if ordinal >= count {
            let devices = if count == 1 { "device" } else { "devices" };
            return Err(Error::Unavailable(format!(
                "there is no device cuda:{ordinal}: the driver shows {count} {devices}"
            )));
        }
        let (info, device) = DeviceInfo::read(driver, ordinal)?;
        if let Some(problem) = &info.problem {
            return Err(Error::Unavailable(format!(
                "cuda:{ordinal} ({}) cannot be used: {problem}",
                info.name
            )));
        }
        let mut context = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call; the context is released when the last clone is dropped.
        unsafe { call!(driver, cuDevicePrimaryCtxRetain(&mut context, device)) }?;
        Ok(Self { inner: Arc::new(DeviceInner { driver, device, context, info }) })
    }

    /// Returns the device's index among the devices that `CUDA_VISIBLE_DEVICES` selects.
    pub fn ordinal(&self) -> u32 {
        self.inner.info.ordinal
    }

    /// Properties of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    /// Returns the device's free memory and its total memory, in bytes.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let bound = self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are valid for the call.
        unsafe { call!(bound.driver(), cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((free as u64, total as u64))
    }

    /// Waits until all work on the device is done, including the work of other libraries. The wait invalidates every
    /// CUDA graph capture.
    pub fn synchronize(&self) -> Result<()> {
        let bound = self.bind()?;
        // SAFETY: the context is current.
        unsafe { call!(bound.driver(), cuCtxSynchronize()) }
    }

    /// Makes the device's context current on this thread until the returned value is dropped. Dropping it restores the
    /// previous context.
    ///
    /// Every function of this module binds the device itself. Calls of other libraries that need a current context, for
    /// example nvJPEG's, must be made while a `Bound` exists.
    pub fn bind(&self) -> Result<Bound<'_>> {
        // This call also fails in a forked child, before the driver is called.
        let driver = driver()?;
        if thread::is_attached(self.inner.context) {
            return Ok(Bound { device: self, previous: None });
        }
        let relaxed = Relaxed::new(driver);
        let mut former = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(driver, cuCtxGetCurrent(&mut former)) }?;
        if former != self.inner.context {
            // SAFETY: `self` holds the context.
            unsafe { call!(driver, cuCtxSetCurrent(self.inner.context)) }?;
        }
        Ok(Bound { device: self, previous: Some((former, relaxed)) })
    }

    /// Makes the device's context current on this thread for the thread's whole life. Then [`GpuDevice::bind`] has
    /// nothing to do. Only for threads that work for this device alone and end before the device is dropped.
    pub fn attach_thread(&self) -> Result<()> {
        let driver = driver()?;
        // SAFETY: `self` and the objects that the thread uses hold the context.
        unsafe { call!(driver, cuCtxSetCurrent(self.inner.context)) }?;
        thread::attach(driver, self.inner.context);
        Ok(())
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner) || self.inner.context == other.inner.context
    }

    pub(super) fn handle(&self) -> sys::CUdevice {
        self.inner.device
    }
}

impl fmt::Debug for GpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{}", self.ordinal())
    }
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        // A forked child has no context to release.
        if let Ok(driver) = driver() {
            // SAFETY: this releases the context that `open` retained. No object in the context exists any more, because
            // an object holds its device.
            let _ = unsafe { call!(driver, cuDevicePrimaryCtxRelease_v2(self.device)) };
        }
    }
}

/// A device whose context is current on this thread.
pub struct Bound<'a> {
    device: &'a GpuDevice,
    /// The context and the capture mode to restore. `None` on Foreload's own threads, which keep both. Only this thread
    /// can restore them.
    previous: Option<(sys::CUcontext, Relaxed)>,
}

impl Bound<'_> {
    pub(super) fn driver(&self) -> &'static Driver {
        self.device.inner.driver
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        if let Some((former, _)) = self.previous
            && former != self.device.inner.context
        {
            // SAFETY: the context was current before. If its owner has destroyed it in the meantime, the driver refuses
            // the call, and this device's context stays current.
            let _ = unsafe { call!(self.driver(), cuCtxSetCurrent(former)) };
        }
    }
}

pub(super) fn count(driver: &Driver) -> Result<u32> {
    let mut count = 0;
    // SAFETY: the pointer is valid for the call.
    unsafe { call!(driver, cuDeviceGetCount(&mut count)) }?;
    Ok(u32::try_from(count).unwrap_or(0))
}

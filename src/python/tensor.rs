//! A tensor of a batch as Python sees it: the DLPack protocol, both ways of asking.

use crate::batch;
use crate::dlpack;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::CStr;

/// A tensor in CPU memory that any DLPack consumer takes without a copy: `np.from_dlpack(t)`, `torch.from_dlpack(t)`.
///
/// Its memory is not reused while it, or anything made from it, exists.
#[pyclass(frozen, module = "foreload")]
pub(super) struct Tensor(pub batch::Tensor);

#[pymethods]
impl Tensor {
    /// Lengths of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// Name of the element type: `float32`, `float16`, `bfloat16`, `uint8`, `int64` or `bool`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.element().name()
    }

    /// `(1, 0)`: CPU memory.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (dlpack::DEVICE_CPU, 0)
    }

    /// A capsule: `dltensor_versioned` when `max_version` allows 1.0, else `dltensor`.
    ///
    /// `stream` must be None (or -1) for CPU memory; `dl_device` None or `(1, 0)`; `copy=True` copies.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some_and(|stream| stream != -1) {
            return Err(PyValueError::new_err("stream must be None for a tensor in CPU memory"));
        }
        if dl_device.is_some_and(|device| device != (dlpack::DEVICE_CPU, 0)) {
            return Err(PyBufferError::new_err(format!(
                "dl_device is {dl_device:?}: this tensor is in CPU memory and can only be handed over there, (1, 0)"
            )));
        }
        let (tensor, copy) = (self.0.clone(), copy.unwrap_or(false));
        if max_version.is_some_and(|version| version >= (1, 0)) {
            let managed = py.detach(|| Address(dlpack::managed_versioned(tensor, copy).cast()));
            // SAFETY: the pointer is fresh from `managed_versioned`, and the destructor is the one for it.
            unsafe { capsule(py, managed, dlpack::VERSIONED_NAME, drop_versioned) }
        } else {
            let managed = py.detach(|| Address(dlpack::managed(tensor, copy).cast()));
            // SAFETY: the pointer is fresh from `managed`, and the destructor is the one for it.
            unsafe { capsule(py, managed, dlpack::LEGACY_NAME, drop_legacy) }
        }
    }

    fn __len__(&self) -> usize {
        self.0.shape().first().map_or(0, |&n| n as usize)
    }

    fn __repr__(&self) -> String {
        format!("foreload.Tensor(shape={:?}, dtype={})", self.0.shape(), self.0.element().name())
    }
}

/// A pointer on its way out of a section without the GIL.
struct Address(*mut std::ffi::c_void);

// SAFETY: the tensor it points to is owned by nobody else and may be freed on any thread.
unsafe impl Send for Address {}

/// A capsule that owns `managed` until a consumer renames it.
///
/// # Safety
/// `managed` is valid for `destructor`, which frees it when the capsule still has `name`.
unsafe fn capsule<'py>(
    py: Python<'py>,
    managed: Address,
    name: &'static CStr,
    destructor: ffi::PyCapsule_Destructor,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the name is static; the result is a new reference or null with an exception set.
    unsafe {
        let object = ffi::PyCapsule_New(managed.0, name.as_ptr(), Some(destructor));
        Bound::from_owned_ptr_or_err(py, object)
    }
}

/// The pointer of a capsule nobody consumed, null otherwise: consumers rename the capsules they take.
///
/// # Safety
/// Called by Python with a capsule that is being destroyed.
unsafe fn unconsumed(capsule: *mut ffi::PyObject, name: &CStr) -> *mut std::ffi::c_void {
    // SAFETY: both calls accept any capsule and any name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name.as_ptr()) == 1 {
            ffi::PyCapsule_GetPointer(capsule, name.as_ptr())
        } else {
            std::ptr::null_mut()
        }
    }
}

unsafe extern "C" fn drop_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: the pointer is the one `__dlpack__` put in, and the capsule is the last to know it.
    unsafe { dlpack::discard(unconsumed(capsule, dlpack::LEGACY_NAME).cast()) }
}

unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: the pointer is the one `__dlpack__` put in, and the capsule is the last to know it.
    unsafe { dlpack::discard_versioned(unconsumed(capsule, dlpack::VERSIONED_NAME).cast()) }
}

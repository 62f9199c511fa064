//! Tensors of a batch in Python: the DLPack protocol, and the CUDA array interface.
//!
//! A buffer is reused only after all its tensors have been dropped. A buffer on a GPU is leased to each stream that
//! reads it, by DLPack or by `Batch.used_by`. It is written again only after an event on each of these streams.

use super::error::raise;
use crate::dlpack::{self, Share};
use engine::batch::{self, Element, Place, StreamUse};
use pixels::gpu::StreamRef;
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

/// A tensor that any DLPack consumer takes without a copy: `np.from_dlpack(t)`, `torch.from_dlpack(t)`.
///
/// Its memory is not reused while the tensor, or anything made from it, exists. On a GPU it is not reused before the
/// consumer's stream has completed the work that it queued until then.
#[pyclass(frozen, module = "foreload", name = "Tensor")]
pub(super) struct PyTensor {
    tensor: batch::Tensor,
    /// Keeps the tensor leased to the legacy default stream, for users of the CUDA array interface.
    stream_use: Mutex<Option<StreamUse>>,
}

impl From<batch::Tensor> for PyTensor {
    fn from(tensor: batch::Tensor) -> Self {
        Self { tensor, stream_use: Mutex::default() }
    }
}

#[pymethods]
impl PyTensor {
    /// The lengths of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.shape())
    }

    /// The name of the element type: `uint8`, `int8` and so on to `uint64` and `int64`, `float16`, `bfloat16`,
    /// `float32`, `float64` or `bool`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.tensor.element().name()
    }

    /// The device: `(1, 0)` for CPU memory, `(2, n)` for the memory of GPU n.
    fn __dlpack_device__(&self) -> (i32, i32) {
        let device = dlpack::DlDevice::from(self.tensor.place());
        (device.kind, device.id)
    }

    /// Makes a capsule: `dltensor_versioned` if `max_version` allows 1.0, else `dltensor`.
    ///
    /// On a GPU, `stream` is the consumer's stream: None or 1 is the legacy default stream, 2 is the calling thread's
    /// default stream, a larger number is the handle of a stream, and -1 leaves the order to the consumer. For CPU
    /// memory it must be None or -1. `dl_device` must be the tensor's own device, or `(1, 0)`. With `(1, 0)`, and for
    /// CPU memory with `copy=True`, the tensor is copied, and the copy is complete on return.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let on_gpu = self.tensor.place() != Place::Host;
        if !on_gpu && stream.is_some_and(|stream| stream != -1) {
            return Err(PyValueError::new_err("stream must be None for a tensor in CPU memory"));
        }
        let share = match self.must_copy(dl_device, copy)? {
            true => Share::HostCopy,
            false if on_gpu => Share::Same(Some(raise(py, self.lend(py, stream))?)),
            false => Share::Same(None),
        };
        let tensor = self.tensor.clone();
        if max_version.is_some_and(|version| version >= (1, 0)) {
            let managed = py.detach(|| dlpack::managed_versioned(tensor, share).map(|t| Address(t.cast())));
            // SAFETY: the pointer is fresh from `managed_versioned`, and the destructor matches it.
            unsafe { capsule(py, raise(py, managed)?, dlpack::VERSIONED_NAME, drop_versioned) }
        } else {
            let managed = py.detach(|| dlpack::managed(tensor, share).map(|t| Address(t.cast())));
            // SAFETY: the pointer is fresh from `managed`, and the destructor matches it.
            unsafe { capsule(py, raise(py, managed)?, dlpack::LEGACY_NAME, drop_legacy) }
        }
    }

    /// The CUDA array interface, version 3, of a tensor on a GPU. Its `stream` is the legacy default stream, which
    /// waits for the batch; work on other streams must be done before the tensor is dropped.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.tensor.place() == Place::Host {
            return Err(PyAttributeError::new_err("__cuda_array_interface__: this tensor is in CPU memory"));
        }
        let Some(typestr) = typestr(self.tensor.element()) else {
            return Err(PyAttributeError::new_err(
                "__cuda_array_interface__ does not support bfloat16: use DLPack",
            ));
        };
        let stream_use = raise(py, self.lend(py, None))?;
        // The interface has no way to signal that the consumer is done, so the lease lasts as long as the tensor.
        self.stream_use.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(stream_use);
        let dict = self.interface(py, typestr)?;
        dict.set_item("stream", 1)?;
        Ok(dict)
    }

    /// Returns a NumPy array of the same memory, or a copy if `dtype` or `copy` requires one.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        this: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, tensor) = (this.py(), &this.get().tensor);
        if tensor.place() != Place::Host {
            return Err(PyTypeError::new_err(
                "this tensor is on a GPU, which NumPy does not support: use torch.from_dlpack(tensor) or \
                 cupy.from_dlpack(tensor), or copy it with np.from_dlpack(tensor, device=\"cpu\")",
            ));
        }
        // NumPy has no bfloat16, so it reads the bits as integers.
        let interface = this.get().interface(py, typestr(tensor.element()).unwrap_or("<u2"))?;
        py.import("foreload._arrays")?.call_method1("array", (this, interface, dtype, copy))
    }

    /// Returns a copy of the elements' bytes, row-major.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = raise(py, py.detach(|| self.tensor.read()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.tobytes(py)
    }

    fn __len__(&self) -> usize {
        self.tensor.shape().first().map_or(0, |&n| n as usize)
    }

    fn __repr__(&self) -> String {
        format!("foreload.Tensor(shape={:?}, dtype={})", self.tensor.shape(), self.tensor.element().name())
    }
}

impl PyTensor {
    fn interface<'py>(&self, py: Python<'py>, typestr: &str) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("shape", self.shape(py)?)?;
        dict.set_item("typestr", typestr)?;
        dict.set_item("data", (self.tensor.data() as usize, false))?;
        dict.set_item("strides", py.None())?;
        dict.set_item("version", 3)?;
        Ok(dict)
    }

    fn must_copy(&self, dl_device: Option<(i32, i32)>, copy: Option<bool>) -> PyResult<bool> {
        let own = self.__dlpack_device__();
        let to_host = dl_device == Some((dlpack::DEVICE_CPU, 0));
        match copy {
            _ if dl_device.is_some_and(|device| device != own) && !to_host => {
                let asked = dl_device.unwrap_or_default();
                Err(PyBufferError::new_err(match own.0 {
                    dlpack::DEVICE_CPU => format!(
                        "dl_device is {asked:?}, but this tensor is in CPU memory and can be exported only there, (1, \
                         0)"
                    ),
                    _ => format!(
                        "dl_device is {asked:?}, but this tensor is on a GPU and can be exported only there, {own:?}, \
                         or copied to CPU memory, (1, 0)"
                    ),
                }))
            }
            Some(false) if to_host && own.0 != dlpack::DEVICE_CPU => Err(PyBufferError::new_err(
                "copy is False, but a tensor on a GPU can be exported to CPU memory only as a copy",
            )),
            Some(true) if !to_host && own.0 != dlpack::DEVICE_CPU => Err(PyBufferError::new_err(
                "copy is True, but copies on a GPU are not supported: copy the tensor yourself, in torch with .clone()",
            )),
            copy => Ok(copy == Some(true) || (to_host && own.0 != dlpack::DEVICE_CPU)),
        }
    }

    /// Leases the tensor to the consumer's stream: the stream waits for the batch, and the buffer is reused only after
    /// the stream's work.
    fn lend(&self, py: Python<'_>, stream: Option<i64>) -> crate::Result<StreamUse> {
        let stream = match stream {
            // None is the legacy stream. With -1 the consumer orders its work itself, but at least after the work of
            // the legacy stream.
            None | Some(-1) => StreamRef::LEGACY,
            // SAFETY: by DLPack's contract the consumer's stream is alive, and it reads there only until it drops the
            // tensor.
            Some(number) => unsafe { StreamRef::from_number(number) }?,
        };
        let tensor = &self.tensor;
        py.detach(|| tensor.lend(stream))
    }
}

fn typestr(element: Element) -> Option<&'static str> {
    match element {
        Element::F32 => Some("<f4"),
        Element::F16 => Some("<f2"),
        Element::Bf16 => None,
        Element::U8 => Some("|u1"),
        Element::F64 => Some("<f8"),
        Element::I8 => Some("|i1"),
        Element::I16 => Some("<i2"),
        Element::I32 => Some("<i4"),
        Element::I64 => Some("<i8"),
        Element::U16 => Some("<u2"),
        Element::U32 => Some("<u4"),
        Element::U64 => Some("<u8"),
        Element::Bool => Some("|b1"),
    }
}

/// A pointer that may leave a section without the GIL, although raw pointers are not `Send`.
struct Address(*mut std::ffi::c_void);

// SAFETY: the pointer is the only owner of its tensor, which may be freed on any thread.
unsafe impl Send for Address {}

/// Makes a capsule that owns `managed` until a consumer renames it.
///
/// # Safety
/// `managed` is valid for `destructor`, which frees it if the capsule still has `name`.
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

/// Returns the pointer of a capsule that no consumer took, else null. Consumers rename the capsules that they take.
///
/// # Safety
/// Python calls this with a capsule that is being destroyed.
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
    // SAFETY: the pointer comes from `__dlpack__`, and the capsule holds the last reference to it.
    unsafe { dlpack::discard(unconsumed(capsule, dlpack::LEGACY_NAME).cast()) }
}

unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: the pointer comes from `__dlpack__`, and the capsule holds the last reference to it.
    unsafe { dlpack::discard_versioned(unconsumed(capsule, dlpack::VERSIONED_NAME).cast()) }
}

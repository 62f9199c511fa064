//! `foreload.ImageLoader`.

use super::Loader;
use crate::python::error::raise;
use crate::python::settings::{self, whole_number};
use base::names::NamedValue;
use data::schedule::Draw;
use engine::config::LoaderKind;
use engine::show::{SheetRequest, sheet};
use pixels::augment::{DrawnView, MixRegion};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

/// The class `foreload.ImageLoader`. Its documentation is generated from the table of settings, see
/// `settings::describe`.
#[pyclass(frozen, extends = Loader, module = "foreload")]
pub(in crate::python) struct ImageLoader;

#[pymethods]
impl ImageLoader {
    #[new]
    #[pyo3(signature = (*arguments, **settings))]
    fn new(
        py: Python<'_>,
        arguments: &Bound<'_, PyTuple>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let arguments = settings::read(LoaderKind::Images, arguments, settings)?;
        let loader = Loader::open(py, arguments, settings)?;
        Ok(PyClassInitializer::from(loader).add_subclass(Self))
    }

    /// The name of the images' element type; with several image fields or views, the element type of the first.
    #[getter]
    fn dtype(this: PyRef<'_, Self>) -> &'static str {
        this.as_super().pipeline.config().output().dtype.name()
    }

    /// The order of the images' dimensions, by name.
    #[getter]
    fn memory_format(this: PyRef<'_, Self>) -> &'static str {
        this.as_super().pipeline.config().output().format.name()
    }

    /// Returns how an epoch mixes the images of the global batch that contains position `position`: a dict of
    /// transform, lam, box; None without mixing.
    #[pyo3(signature = (position, epoch=None))]
    fn mix<'py>(
        this: PyRef<'py, Self>,
        py: Python<'py>,
        position: &Bound<'py, PyAny>,
        epoch: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let position = whole_number("position", position, u64::MAX)?;
        let epoch = this.as_super().epoch_or_this(epoch.as_ref())?;
        let world_size = this.as_super().place_in_world(py)?.1;
        let Some(drawn) = this.as_super().pipeline.mix(position, epoch, world_size) else { return Ok(None) };
        let dict = PyDict::new(py);
        dict.set_item("transform", drawn.name())?;
        dict.set_item("lam", drawn.share)?;
        dict.set_item(
            "box",
            match drawn.region {
                MixRegion::Everywhere => None,
                MixRegion::Rectangle { left, top, right, bottom } => Some((left, top, right, bottom)),
            },
        )?;
        Ok(Some(dict))
    }

    /// Returns how an epoch transforms a sample, as a dict. x, y, width, height: the source pixels that are resized.
    /// padding: the pixels added to them first (left, top, right, bottom). resized_width, resized_height: their size
    /// after resizing. left, top: the origin of the output's window in the resized image. Also flip, vertical_flip,
    /// output_width, output_height, ops and erasures. orientation: the EXIF orientation by which the image was turned
    /// first, with `orientation="apply"`; else 1. `view` chooses one of several views, `field` one of several
    /// images.
    #[pyo3(
        signature = (sample_id, epoch=None, *, occurrence=None, view=None, field=None),
        text_signature = "($self, sample_id, epoch=None, *, occurrence=0, view=0, field=None)"
    )]
    fn view<'py>(
        this: PyRef<'py, Self>,
        py: Python<'py>,
        sample_id: &Bound<'py, PyAny>,
        epoch: Option<Bound<'py, PyAny>>,
        occurrence: Option<Bound<'py, PyAny>>,
        view: Option<Bound<'py, PyAny>>,
        field: Option<&str>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let number = |name, argument: Option<Bound<'py, PyAny>>| {
            argument.map_or(Ok(0), |argument| whole_number(name, &argument, u32::MAX.into()))
        };
        let epoch = this.as_super().epoch_or_this(epoch.as_ref())?;
        let occurrence = number("occurrence", occurrence)? as u32;
        let view = number("view", view)? as usize;
        let draw = Draw { sample: whole_number("sample_id", sample_id, u64::MAX)?, occurrence };
        let pipeline = this.as_super().pipeline.clone();
        let drawn = raise(py, py.detach(|| pipeline.views(draw, epoch, field)))?;
        let Some(seen @ DrawnView { view, width, height, ops, erasures, .. }) = drawn.views().get(view)
        else {
            let message = format!("is {view}, but each image has {}", drawn.views().len());
            return raise(py, Err(crate::Error::config("view", message)));
        };
        let dict = PyDict::new(py);
        for (names, numbers) in
            [(["x", "y"], seen.first_pixel()), (["width", "height"], seen.source_pixels())]
        {
            names.into_iter().zip(numbers).try_for_each(|(name, number)| dict.set_item(name, number))?;
        }
        dict.set_item("padding", seen.added_before_resize())?;
        dict.set_item("resized_width", view.x.resized)?;
        dict.set_item("resized_height", view.y.resized)?;
        dict.set_item("left", view.x.offset)?;
        dict.set_item("top", view.y.offset)?;
        dict.set_item("orientation", drawn.turn().exif())?;
        dict.set_item("flip", view.flip)?;
        dict.set_item("vertical_flip", view.vertical_flip)?;
        dict.set_item("output_width", width)?;
        dict.set_item("output_height", height)?;
        dict.set_item("ops", in_python(py, ops)?)?;
        dict.set_item("erasures", in_python(py, erasures)?)?;
        Ok(dict)
    }

    /// Draws the network's input for some samples.
    #[pyo3(
        signature = (samples=None, *, rows=None, epoch=None, epochs=None, field=None),
        text_signature = "($self, samples=None, *, rows=8, epoch=None, epochs=1, field=None)"
    )]
    fn show<'py>(
        this: PyRef<'py, Self>,
        py: Python<'py>,
        samples: Option<Vec<Bound<'py, PyAny>>>,
        rows: Option<Bound<'py, PyAny>>,
        epoch: Option<Bound<'py, PyAny>>,
        epochs: Option<Bound<'py, PyAny>>,
        field: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let samples = samples.unwrap_or_default();
        let number = |name, argument: Option<Bound<'py, PyAny>>, usual| {
            argument.map_or(Ok(usual), |argument| whole_number(name, &argument, u64::MAX))
        };
        let usual = SheetRequest::default();
        let request = SheetRequest {
            samples: samples
                .iter()
                .map(|id| whole_number("samples", id, u64::MAX))
                .collect::<PyResult<_>>()?,
            rows: number("rows", rows, usual.rows)?,
            epoch: this.as_super().epoch_or_this(epoch.as_ref())?,
            epochs: number("epochs", epochs, usual.epochs)?,
            world_size: this.as_super().place_in_world(py)?.1,
            field,
        };
        let pipeline = this.as_super().pipeline.clone();
        let png = raise(py, py.detach(|| sheet(&pipeline, &request)))?;
        py.import("foreload._sheet")?.getattr("Sheet")?.call1((PyBytes::new(py, &png),))
    }
}

fn in_python<'py>(py: Python<'py>, value: &impl serde::Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    py.import("json")?.call_method1("loads", (text,))
}

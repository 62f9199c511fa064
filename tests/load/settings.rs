//! The table of settings, and the files that are generated from it and from the table of transforms: the stubs and the
//! manual equal the output of `make stub`.

use crate::common::Dataset;
use foreload::testing::augment::transforms_stub;
use foreload::testing::config::{
    FieldOptions, LoaderKind, LoaderOptions, Setting, SettingsClass, SettingsObject, manual, parameters,
    signature, stub, stub_of_objects,
};
use foreload::testing::dataset::Contents;
use foreload::{DType, Labels};
use std::path::Path;
use std::process::Command;

/// The file with the stub of a loader, between two marker lines.
fn stub_file(loader: LoaderKind) -> &'static str {
    match loader {
        LoaderKind::Fields => "python/foreload/_loader.pyi",
        LoaderKind::Images => "python/foreload/_loaders.pyi",
        LoaderKind::Files => "python/foreload/_file_loader.pyi",
    }
}

const MANUAL: &str = "docs/settings.md";

/// The variable that `make stub` sets: the files are written instead of compared.
const WRITES: &str = "FORELOAD_WRITE_STUB";

fn compare(file: &str, wanted: impl FnOnce(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let wanted = wanted(&written);
    if written == wanted {
        return;
    }
    assert!(std::env::var_os(WRITES).is_some(), "{file} is not what its table says: run `make stub`");
    std::fs::write(&path, wanted).unwrap();
}

#[test]
fn the_stub_is_that_of_the_table() {
    compare("python/foreload/_objects.pyi", |_| stub_of_objects());
    for loader in LoaderKind::ALL {
        let file = stub_file(loader);
        compare(file, |written| {
            let begin = format!("# What `make stub` writes of {} begins here.\n", loader.name());
            let (before, rest) =
                written.split_once(&begin).unwrap_or_else(|| panic!("{file} lacks {begin:?}"));
            let end = "    # What it writes ends here.\n";
            let (_, after) = rest.split_once(end).unwrap_or_else(|| panic!("{file} lacks {end:?}"));
            format!("{before}{begin}{}{end}{after}", stub(SettingsClass::Loader(loader)))
        });
    }
}

#[test]
fn the_stub_of_transforms_is_that_of_their_table() {
    compare("python/foreload/transforms/_made.pyi", |_| transforms_stub());
}

#[test]
fn the_manual_is_that_of_the_table() {
    compare(MANUAL, |_| manual());
}

#[test]
fn every_setting_is_a_parameter_and_a_flag_with_its_default() {
    let help = Command::new(env!("CARGO_BIN_EXE_foreload")).args(["bench", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for setting in Setting::all() {
        let name = setting.name;
        for loader in LoaderKind::ALL {
            let written = signature(SettingsClass::Loader(loader), false);
            let own = format!("{name}={}", setting.default(loader));
            assert_eq!(
                written.contains(&own),
                setting.belongs_to(loader) && setting.member.is_none_or(|member| member.is_keyword),
                "{loader:?}: {own}"
            );
        }
        if let Some(member) = setting.member {
            let parameters = parameters(SettingsClass::Object(member.object));
            let own = parameters.iter().find(|parameter| parameter.name == member.name);
            let default = own.unwrap_or_else(|| panic!("{name} is missing")).default.clone();
            assert!(default.is_none_or(|default| default == setting.default(LoaderKind::Images)), "{name}");
        }
        assert!(setting.doc(LoaderKind::Images).ends_with('.'), "{name}: whole sentences");

        let Some(flag) = setting.flag_name() else { continue };
        let found = help.split("\n      --").find(|paragraph| {
            paragraph.strip_prefix(flag.as_str()).is_some_and(|rest| rest.starts_with([' ', '[']))
        });
        let paragraph = found.unwrap_or_else(|| panic!("no --{flag}"));
        assert!(!["None: ", "True: ", "False: "].iter().any(|word| paragraph.contains(word)), "{paragraph}");
        let default = match setting.default(LoaderKind::Images) {
            default if default == "None" => {
                let says = setting.doc(LoaderKind::Images).contains(" None: ");
                assert_eq!(paragraph.contains("[default: "), says, "--{flag}: {paragraph}");
                continue;
            }
            default => default.trim_matches(['"', '(', ')']).replace(", ", ",").to_lowercase(),
        };
        assert!(paragraph.contains(&format!("[default: {default}]")), "--{flag}: {default}: {paragraph}");
    }
}

#[test]
fn every_default_is_a_value_that_may_be() {
    for loader in LoaderKind::ALL {
        loader.usual().validate().unwrap();
        let mut options = loader.usual();
        for setting in loader.settings() {
            setting.set(&mut options, &setting.shown(&loader.usual())).unwrap();
        }
    }
}

#[test]
fn values_set_in_rust_are_checked_like_those_of_users() {
    let wrong = [
        (
            LoaderOptions { batch_size: 0, ..Default::default() },
            "batch_size: is 0, must be a whole number from 1 to",
        ),
        (
            LoaderOptions { flip: f64::NAN, ..Default::default() },
            "flip: is NaN, must be a number from 0 to 1",
        ),
        (
            LoaderOptions { std: [1.0, 0.0, 1.0], ..Default::default() },
            "std: is (1.0, 0.0, 1.0), must be three",
        ),
        (
            LoaderOptions { image_size: (8, 20_000), ..Default::default() },
            "image_size: is (8, 20000), must be",
        ),
        (
            LoaderOptions { device: "tpu".into(), ..Default::default() },
            "device: is \"tpu\", must be auto, cpu",
        ),
        (LoaderOptions { epoch_size: Some(0), ..Default::default() }, "epoch_size: is 0, must be"),
    ];
    for (options, said) in wrong {
        let error = options.validate().unwrap_err().to_string();
        assert!(error.starts_with(&format!("config: {said}")), "{error}");
    }
}

#[test]
fn members_of_an_object_are_told_apart() {
    for object in SettingsObject::ALL {
        let names: Vec<_> = object.members().map(|setting| setting.member.unwrap().name).collect();
        assert!(names.len() >= object.positional().max(1), "{names:?}");
        assert!(names.iter().all(|name| object.member(name).is_some()));
    }
}

#[test]
fn images_of_a_loader_of_fields_come_as_they_are() {
    let dataset = Dataset::folder(6);
    for kind in LoaderKind::ALL {
        let options = LoaderOptions { device: "cpu".into(), ..kind.usual() };
        let config = options.check(&dataset.index()).unwrap();
        let has_size = config.images.first_recipe().views()[0].size().is_some();
        assert_eq!(
            (has_size, config.output().dtype == DType::U8),
            match kind {
                LoaderKind::Fields => (false, true),
                LoaderKind::Images | LoaderKind::Files => (true, false),
            }
        );
        let has = |name: &str| kind.settings().any(|setting| setting.name == name);
        assert_eq!(
            (has("fields"), has("image_size")),
            (kind != LoaderKind::Files, kind == LoaderKind::Images)
        );
    }
}

/// A table may change or vanish while the index is built. It is read once, so that fields, members and labels come from
/// the same table.
#[test]
fn a_table_of_labels_is_read_once() {
    let dataset = Dataset::folder(6);
    let table = dataset.beside("labels.csv");
    let rows = (0..6).map(|sample| format!("{sample},{}\n", 0.5 * f64::from(sample)));
    std::fs::write(&table, "sample_id,age\n".to_owned() + &rows.collect::<String>()).unwrap();
    let options = LoaderOptions {
        fields: Some(["image", "age"].into_iter().map(FieldOptions::named).collect()),
        labels: Some(Labels::File(table.clone())),
        device: "cpu".into(),
        ..LoaderOptions::default()
    };
    let checked = options.validate().unwrap();
    std::fs::remove_file(&table).unwrap();
    assert_eq!(checked.index_options(Contents::Images).members, Some(vec!["image".to_owned()]));
    checked.check(&dataset.index()).unwrap();
    let error = options.validate().unwrap_err().to_string();
    assert!(error.starts_with("config: labels: ") && error.contains("cannot be read"), "{error}");
}

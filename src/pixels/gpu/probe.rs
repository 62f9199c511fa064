//! Finds the GPUs of this machine, or the reason why there are none, as a sentence.

use super::device::{DeviceInfo, count};
use super::driver::{Driver, NoDriver, started};
use base::error::Result;
use std::fmt;

/// A version of CUDA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct CudaVersion {
    /// The major version: 12 for CUDA 12.2.
    pub major: u32,
    /// The minor version: 2 for CUDA 12.2.
    pub minor: u32,
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Result of [`probe()`].
#[derive(Debug, Clone, serde::Serialize)]
pub struct Probe {
    /// The newest CUDA version that the driver supports; `None` if no driver starts.
    pub driver: Option<CudaVersion>,
    /// All devices that the driver reports, including those that Foreload cannot use.
    pub devices: Vec<DeviceInfo>,
    /// The reason why no device can be used, as a sentence; `None` if a device can be used.
    pub problem: Option<String>,
    /// Whether the machine has no driver or no device. Such a machine has no fault that must be reported.
    #[serde(skip)]
    pub absent: bool,
}

impl Probe {
    /// The devices that Foreload can use.
    pub fn usable(&self) -> impl Iterator<Item = &DeviceInfo> {
        self.devices.iter().filter(|device| device.problem.is_none())
    }
}

/// Looks for a driver and its devices. Never fails, opens no device, and takes milliseconds. The call initialises the
/// driver, so children that are forked later cannot use CUDA.
pub fn probe() -> Probe {
    let mut found = Probe { driver: None, devices: Vec::new(), problem: None, absent: false };
    let driver = match started() {
        Ok(driver) => driver,
        Err(NoDriver { why, absent }) => return Probe { problem: Some(why), absent, ..found },
    };
    if let Err(error) = find_devices(driver, &mut found) {
        found.problem = Some(error.to_string());
    } else if found.devices.is_empty() {
        found.problem = Some("the NVIDIA driver finds no device".to_owned());
        found.absent = true;
    } else if found.usable().next().is_none() {
        let reason = |device: &DeviceInfo| {
            let problem = device.problem.as_deref().unwrap_or_default();
            format!("cuda:{} ({}) cannot be used: {problem}", device.ordinal, device.name)
        };
        found.problem = Some(found.devices.iter().map(reason).collect::<Vec<_>>().join("; "));
    }
    found
}

fn find_devices(driver: &Driver, found: &mut Probe) -> Result<()> {
    let version = u32::try_from(driver.version).unwrap_or(0);
    found.driver = Some(CudaVersion { major: version / 1000, minor: version % 1000 / 10 });
    for ordinal in 0..count(driver)? {
        found.devices.push(DeviceInfo::read(driver, ordinal)?.0);
    }
    Ok(())
}

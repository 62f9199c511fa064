//! Rotates the hue as torchvision does: through hue, saturation and value (HSV), all in float32.

use super::arithmetic::truncate;
use crate::level::vectorised;

/// The value of one grey level on the scale of 0..1.
const UNIT: f32 = (1.0 / 255.0_f64) as f32;
/// The factor from 0..1 to levels: torchvision's conversion to uint8 multiplies by slightly less than 256 and
/// truncates.
const LEVELS: f32 = (256.0 - 1e-3_f64) as f32;
const SIXTH: f32 = (1.0 / 6.0_f64) as f32;

vectorised! {
    /// Rotates the hue of every pixel by a fraction of a full rotation, -0.5 to 0.5.
    pub(super) fn turn(red: &mut [u8], green: &mut [u8], blue: &mut [u8], by: f32) {
        for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
            [*red, *green, *blue] = turned([*red, *green, *blue], by);
        }
    }
}

/// Rotates the hue of a pixel. Every step is rounded as in torchvision. Two steps of torchvision are left out because
/// they change no level. Values are not clamped to 0..1, because values above 1 become level 255 in any case. Pixels
/// with three equal levels have no special case, because their saturation is 0, so their hue does not matter.
#[inline(always)]
fn turned(pixel: [u8; 3], by: f32) -> [u8; 3] {
    let [red, green, blue] = pixel.map(|level| f32::from(level) * UNIT);
    let larger = if red > green { red } else { green };
    let most = if larger > blue { larger } else { blue };
    let smaller = if red < green { red } else { green };
    let least = if smaller < blue { smaller } else { blue };
    let range = most - least;
    let (is_red, is_green) = (red == most, green == most);

    // `next` and `last` are the other two channels. The distance of `next` from the greatest level raises the hue, and
    // the distance of `last` lowers the hue.
    let next = if is_red {
        blue
    } else if is_green {
        red
    } else {
        green
    };
    let last = if is_red {
        green
    } else if is_green {
        blue
    } else {
        red
    };
    let sector = if is_red {
        0.0
    } else if is_green {
        2.0
    } else {
        4.0
    };
    let divisor = if range > 0.0 { range } else { 1.0 };
    let hue = ((most - next) / divisor + sector) - (most - last) / divisor;
    let hue = hue * SIXTH + 1.0;
    let hue = if hue >= 1.0 { hue - 1.0 } else { hue };
    let saturation = range / if most > 0.0 { most } else { 1.0 };

    let hue = hue + by;
    let hue = if hue >= 1.0 { hue - 1.0 } else { hue };
    let hue = if hue < 0.0 { hue + 1.0 } else { hue };

    let sixths = hue * 6.0;
    let sector = f32::from(truncate(sixths));
    let share = saturation * (sixths - sector);
    let rest = 1.0 - saturation;
    let falling = truncate((1.0 - share) * most * LEVELS);
    let rising = truncate((share + rest) * most * LEVELS);
    let low = truncate(rest * most * LEVELS);
    let high = truncate(most * LEVELS);
    // One channel has a rising level in even sectors and a falling level in odd sectors.
    let (is_first, is_second) = (sector == 0.0 || sector == 6.0, sector == 1.0);
    let (is_third, is_fourth, is_fifth) = (sector == 2.0, sector == 3.0, sector == 4.0);
    let moving = if is_first || is_third || is_fifth { rising } else { falling };
    [
        if is_second || is_fifth {
            moving
        } else if is_third || is_fourth {
            low
        } else {
            high
        },
        if is_first || is_fourth {
            moving
        } else if is_second || is_third {
            high
        } else {
            low
        },
        if is_first || is_second {
            low
        } else if is_fourth || is_fifth {
            high
        } else {
            moving
        },
    ]
}

//! What a fit leaves undetermined: changes of parameters, alone and together, that the measurements hardly show.

use dunlin_sim::NicParameters;

use super::knob::Candidate;
use super::newton::slopes;
use super::{Compared, Knob};

/// The largest change of a parameter that is tried, as a factor up or down.
const CHANGE: f64 = 1.25;
/// A change is open when it raises the root mean square error by less than this.
const HARDLY: f64 = 0.01;
/// Parameters whose part in a common change is less than this share of its largest are left out.
const MINOR: f64 = 0.2;

/// A change that the measurements hardly show.
#[derive(Clone, Debug, PartialEq)]
pub struct Open {
    /// Names of parameters, and the factor of each.
    pub factors: Vec<(String, f64)>,
    /// Root mean square error with that change.
    pub error: f64,
}

/// Searches for open changes around the values of `knobs` in `nic`: each knob alone up and down, and the directions
/// that change the model's results least, according to its slopes. Each is tried on the model. Also returns the root
/// mean square error without a change.
pub fn open_changes(
    nic: &NicParameters,
    knobs: &[Knob],
    replay: impl Fn(&NicParameters) -> Vec<Compared>,
) -> (f64, Vec<Open>) {
    let here = Candidate::new(nic, knobs, &replay(nic));
    let mut open = Vec::new();
    for direction in units(knobs.len()) {
        open.extend(tried_both_ways(&here, &direction, &replay));
    }
    let slopes = slopes(&here, |there| {
        let rows = replay(&there.nic);
        Some(Candidate::new(&there.nic, &there.knobs, &rows))
    });
    for mut direction in directions(&slopes) {
        let largest = direction
            .iter()
            .fold(0.0, |most: f64, part| most.max(part.abs()));
        for part in &mut direction {
            *part = if part.abs() < MINOR * largest {
                0.0
            } else {
                *part / largest
            };
        }
        // Single parameters were tried above.
        if direction.iter().filter(|part| **part != 0.0).count() > 1 {
            open.extend(tried_both_ways(&here, &direction, &replay));
        }
    }
    (here.error(), open)
}

fn units(count: usize) -> impl Iterator<Item = Vec<f64>> {
    (0..count).map(move |one| {
        (0..count)
            .map(|at| f64::from(u8::from(at == one)))
            .collect()
    })
}

/// The changes in this direction and the opposite one, with a largest part of 1 or -1, as far as they are open.
fn tried_both_ways(
    here: &Candidate,
    direction: &[f64],
    replay: &impl Fn(&NicParameters) -> Vec<Compared>,
) -> Vec<Open> {
    let tried = [CHANGE, 1.0 / CHANGE].into_iter().filter_map(|change| {
        let of = |(knob, part): (&Knob, &f64)| knob.times(change.powf(*part));
        let values: Vec<f64> = here.knobs.iter().zip(direction).map(of).collect();
        let there = here.with(&values)?;
        let error = super::root_mean_square(&replay(&there.nic));
        let both = here.knobs.iter().zip(&there.knobs);
        let factors: Vec<(String, f64)> = both
            .filter(|(here, there)| here.value != there.value)
            .map(|(here, there)| (here.name.clone(), there.value / here.value))
            .collect();
        (!factors.is_empty() && error < here.error() + HARDLY).then_some(Open { factors, error })
    });
    tried.collect()
}

/// Orthogonal directions, each of which changes the model's results least, given those before it: the eigenvectors of
/// the slopes' products, by Jacobi's rotations.
fn directions(slopes: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let count = slopes.len();
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut matrix: Vec<Vec<f64>> = slopes
        .iter()
        .map(|row| slopes.iter().map(|column| product(row, column)).collect())
        .collect();
    let mut vectors: Vec<Vec<f64>> = units(count).collect();
    // It converges quadratically; the bound is far beyond what a few parameters need.
    for _ in 0..100 * count * count {
        let pairs = (0..count).flat_map(|row| (0..row).map(move |column| (row, column)));
        let size = |&(row, column): &(usize, usize)| matrix[row][column].abs();
        let Some((p, q)) = pairs.max_by(|a, b| size(a).total_cmp(&size(b))) else {
            break;
        };
        if matrix[p][q].abs() <= 1e-12 * (matrix[p][p] + matrix[q][q]) {
            break;
        }
        let angle = 0.5 * (2.0 * matrix[p][q]).atan2(matrix[p][p] - matrix[q][q]);
        let (sin, cos) = angle.sin_cos();
        let turn = |p: f64, q: f64| (cos * p + sin * q, cos * q - sin * p);
        for row in matrix.iter_mut() {
            (row[p], row[q]) = turn(row[p], row[q]);
        }
        for rows in [&mut matrix, &mut vectors] {
            let both = rows[p].iter().zip(&rows[q]);
            (rows[p], rows[q]) = both.map(|(&p, &q)| turn(p, q)).unzip();
        }
    }
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| matrix[*a][*a].total_cmp(&matrix[*b][*b]));
    order.into_iter().map(|at| vectors[at].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows that show a product of two parameters and one parameter by itself, and nothing of the fourth.
    fn rows(nic: &NicParameters) -> Vec<Compared> {
        let of = |name| nic.get(name).expect("a parameter");
        let product = of("rx_read_request_ns") * of("rx_read_response_ns");
        let row = |(ours, paper)| Compared {
            label: String::new(),
            paper,
            ours,
        };
        [(product, 400.0), (of("tx_wqe_ns"), 30.0)]
            .map(row)
            .to_vec()
    }

    #[test]
    fn what_rows_do_not_show_is_open_alone_or_together() {
        let named = [
            ("rx_read_request_ns", 20.0),
            ("rx_read_response_ns", 20.0),
            ("tx_wqe_ns", 30.0),
            ("tx_read_ns", 10.0),
        ];
        let knobs = named.map(|(name, value)| Knob {
            name: name.to_owned(),
            value,
            whole: false,
        });
        let mut nic = NicParameters::connectx_5();
        for knob in &knobs {
            nic.set(&knob.name, knob.value).unwrap();
        }
        let (error, open) = open_changes(&nic, &knobs, rows);
        assert!(error < 1e-9);
        let (alone, together): (Vec<&Open>, Vec<&Open>) =
            open.iter().partition(|open| open.factors.len() == 1);
        assert_eq!(alone.len(), 2, "{open:#?}");
        for open in alone {
            assert_eq!(open.factors[0].0, "tx_read_ns");
        }
        assert_eq!(together.len(), 2, "{open:#?}");
        for open in together {
            let [(first, by), (second, back)] = &open.factors[..] else {
                panic!("{open:?}");
            };
            assert_eq!(
                [first, second],
                ["rx_read_request_ns", "rx_read_response_ns"]
            );
            assert!((by * back - 1.0).abs() < 0.01, "{open:?}");
        }
    }
}

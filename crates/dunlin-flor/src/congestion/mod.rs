//! How much may be on its way (Flor §3.2): one controller for each queue pair, by a window or by a rate.

mod dcqcn;
mod swift;

pub use dcqcn::{Dcqcn, DcqcnParameters};
pub use swift::{Swift, SwiftParameters};

/// What an acknowledgement says of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signals {
    /// Bytes that it acknowledges.
    pub bytes: u64,
    /// The round trip, where it could be told.
    pub rtt_ns: Option<u64>,
    /// Whether a switch marked what is acknowledged. In-band telemetry would stand beside it.
    pub marked: bool,
}

/// How it was found out that something is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// What was sent after these work requests was acknowledged; how many they are.
    Overtaken(u32),
    /// Nothing was heard for so long; the number counts the times in a row.
    Timeout(u32),
}

/// A congestion control.
pub trait CongestionControl: std::fmt::Debug + Send {
    /// So many bytes were sent.
    fn sent(&mut self, now_ns: u64, bytes: u64);

    /// An acknowledgement came.
    fn acknowledged(&mut self, now_ns: u64, signals: Signals);

    /// Something is lost.
    fn lost(&mut self, now_ns: u64, loss: Loss);

    /// Bytes that may be on their way: nothing is sent while there are as many, unless there are none.
    fn window_bytes(&self) -> u64;

    /// Nothing is sent before this time, where there is a rate.
    fn not_before_ns(&self) -> u64 {
        0
    }
}

/// A window that never changes: one bandwidth-delay product in the paper's fourth configuration of Fig. 9.
#[derive(Clone, Copy, Debug)]
pub struct FixedWindow {
    window_bytes: u64,
}

impl FixedWindow {
    /// A window of so many bytes.
    pub fn new(window_bytes: u64) -> Self {
        Self { window_bytes }
    }

    /// One bandwidth-delay product.
    pub fn of(bits_per_second: u64, rtt_ns: u64) -> Self {
        let bytes = u128::from(bits_per_second) * u128::from(rtt_ns) / 8_000_000_000;
        Self::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl CongestionControl for FixedWindow {
    fn sent(&mut self, _: u64, _: u64) {}

    fn acknowledged(&mut self, _: u64, _: Signals) {}

    fn lost(&mut self, _: u64, _: Loss) {}

    fn window_bytes(&self) -> u64 {
        self.window_bytes
    }
}

/// No control: the NIC's own, or none at all.
#[derive(Clone, Copy, Debug)]
pub struct HardwareControl;

impl CongestionControl for HardwareControl {
    fn sent(&mut self, _: u64, _: u64) {}

    fn acknowledged(&mut self, _: u64, _: Signals) {}

    fn lost(&mut self, _: u64, _: Loss) {}

    fn window_bytes(&self) -> u64 {
        u64::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_nothing_changes() {
        let mut fixed = FixedWindow::of(100_000_000_000, 50_000);
        assert_eq!(fixed.window_bytes(), 625_000);
        fixed.lost(0, Loss::Timeout(1));
        assert_eq!(fixed.window_bytes(), 625_000);
        assert_eq!(FixedWindow::of(u64::MAX, u64::MAX).window_bytes(), u64::MAX);
        assert_eq!(HardwareControl.window_bytes(), u64::MAX);
        assert_eq!(HardwareControl.not_before_ns(), 0);
    }
}

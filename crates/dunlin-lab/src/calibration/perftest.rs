//! A parser for the output of perftest: `ib_write_lat`, `ib_read_lat`, `ib_write_bw`, `ib_read_bw`, one run or a sweep
//! (`-a`), and any number of runs in one text.

/// The test that a run of perftest carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Test {
    /// Half of the round trip of a WRITE that is answered by a WRITE.
    WriteLatency,
    /// One READ after the other.
    ReadLatency,
    /// WRITEs with many outstanding.
    WriteRate,
    /// READs with many outstanding.
    ReadRate,
}

impl Test {
    /// Whether its value is a latency; otherwise it is a rate.
    pub fn is_latency(self) -> bool {
        matches!(self, Self::WriteLatency | Self::ReadLatency)
    }

    /// The program's name.
    pub fn program(self) -> &'static str {
        match self {
            Self::WriteLatency => "ib_write_lat",
            Self::ReadLatency => "ib_read_lat",
            Self::WriteRate => "ib_write_bw",
            Self::ReadRate => "ib_read_bw",
        }
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        match self.is_latency() {
            true => "us",
            false => "M/s",
        }
    }

    fn of_title(title: &str) -> Option<Self> {
        match title {
            "RDMA_Write Latency Test" => Some(Self::WriteLatency),
            "RDMA_Read Latency Test" => Some(Self::ReadLatency),
            "RDMA_Write BW Test" => Some(Self::WriteRate),
            "RDMA_Read BW Test" => Some(Self::ReadRate),
            _ => None,
        }
    }
}

/// One line of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The test.
    pub test: Test,
    /// Bytes of a message.
    pub bytes: usize,
    /// Queue pairs (`-q`).
    pub queue_pairs: usize,
    /// Requests outstanding on each queue pair (`-t`; for READs, the maximum of the NIC).
    pub depth: usize,
    /// One request in this many is signaled.
    pub signal_every: usize,
    /// Maximum number of bytes that a WRITE carries inline.
    pub inline_bytes: usize,
    /// MTU, if the text states it.
    pub mtu_bytes: Option<usize>,
    /// Microseconds (`t_typical`), or million messages per second.
    pub value: f64,
}

/// Why a text cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PerftestError {
    /// There is no table of a known test.
    #[error("no table of ib_write_lat, ib_read_lat, ib_write_bw or ib_read_bw found: is this the output of perftest?")]
    Nothing,
    /// A line of a table is malformed.
    #[error("line {line}: {found:?} does not match the table with the columns {columns:?}")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// The line.
        found: String,
        /// Names of the columns.
        columns: String,
    },
}

/// Contents of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text {
    /// Lines of tables.
    pub measured: Vec<Measured>,
    /// Titles of tests that were skipped, and why.
    pub passed_over: Vec<(String, &'static str)>,
}

/// The heading of a table.
#[derive(Clone, Debug)]
struct Heading {
    test: Option<Test>,
    queue_pairs: usize,
    depth: Option<usize>,
    outstanding_reads: Option<usize>,
    signal_every: usize,
    inline_bytes: usize,
    mtu_bytes: Option<usize>,
}

impl Heading {
    fn of(test: Option<Test>) -> Self {
        Self {
            test,
            queue_pairs: 1,
            depth: None,
            outstanding_reads: None,
            signal_every: 1,
            inline_bytes: 0,
            mtu_bytes: None,
        }
    }

    /// Parses a setting: `Number of qps   : 8`.
    fn take(&mut self, name: &str, value: &str) {
        let digits = value.find(|c: char| !c.is_ascii_digit());
        let Ok(number) = value[..digits.unwrap_or(value.len())].parse::<usize>() else {
            return;
        };
        match name {
            "Number of qps" => self.queue_pairs = number.max(1),
            "TX depth" => self.depth = Some(number.max(1)),
            "Outstand reads" => self.outstanding_reads = Some(number.max(1)),
            "CQ Moderation" => self.signal_every = number.max(1),
            "Mtu" => self.mtu_bytes = Some(number),
            "Max inline data" => self.inline_bytes = number,
            _ => {}
        }
    }

    fn measured(&self, test: Test, bytes: usize, value: f64) -> Measured {
        let depth = match test {
            Test::ReadRate => self
                .outstanding_reads
                .or(self.depth.map(|depth| depth.min(16))),
            _ => self.depth,
        };
        Measured {
            test,
            bytes,
            queue_pairs: self.queue_pairs,
            depth: depth.unwrap_or(if test.is_latency() { 1 } else { 128 }),
            signal_every: self.signal_every,
            inline_bytes: self.inline_bytes,
            mtu_bytes: self.mtu_bytes,
            value,
        }
    }
}

/// Names of columns, and those that are used.
#[derive(Clone, Debug)]
struct Columns {
    names: String,
    count: usize,
    bytes: usize,
    /// The column of the value, and the scale that converts it to microseconds or millions of messages; for bandwidths
    /// by the bytes of a message.
    value: (usize, Scale),
}

#[derive(Clone, Copy, Debug)]
enum Scale {
    AsItIs,
    /// For bandwidths: millions of bytes per second, divided by the bytes of a message.
    PerByte(f64),
}

impl Columns {
    /// Parses the columns of a line that begins with `#bytes`. Some names have two words; units are in brackets.
    fn of(line: &str) -> Option<Self> {
        let text = line.trim().strip_prefix('#')?;
        let names = text.replace("BW ", "BW_").replace("% perc", "%_perc");
        let names: Vec<&str> = names.split_whitespace().collect();
        let at = |prefix: &str| names.iter().position(|name| name.starts_with(prefix));
        let value = if let Some(at) = at("t_typical").or(at("t_avg")) {
            (at, Scale::AsItIs)
        } else if let Some(at) = at("MsgRate") {
            (at, Scale::AsItIs)
        } else {
            let at = at("BW_average")?;
            let gigabits = names[at].contains("Gb");
            // A megabyte of perftest is 2^20 bytes.
            (at, Scale::PerByte(if gigabits { 125.0 } else { 1.048576 }))
        };
        Some(Self {
            bytes: at("bytes")?,
            count: names.len(),
            names: names.join(" "),
            value,
        })
    }

    fn read(&self, line: &str) -> Option<(usize, f64)> {
        let values: Vec<&str> = line.split_whitespace().collect();
        let bytes: usize = values.get(self.bytes)?.parse().ok()?;
        let value: f64 = values.get(self.value.0)?.parse().ok()?;
        let is_one = values.len() == self.count && bytes > 0 && value > 0.0 && value.is_finite();
        is_one.then(|| match self.value.1 {
            Scale::AsItIs => (bytes, value),
            Scale::PerByte(factor) => (bytes, value * factor / bytes as f64),
        })
    }
}

/// Parses a text.
///
/// # Errors
/// When it contains no output of perftest, or a table is damaged.
pub fn read(text: &str) -> Result<Text, PerftestError> {
    let mut found = Text::default();
    let mut heading = Heading::of(None);
    let mut columns: Option<Columns> = None;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.ends_with("Test") && !trimmed.contains(':') {
            heading = Heading::of(Test::of_title(trimmed));
            columns = None;
            if heading.test.is_none() {
                let why = "no load of the lab resembles it";
                found.passed_over.push((trimmed.to_owned(), why));
            }
        } else if trimmed.starts_with("#bytes") {
            columns = Columns::of(trimmed);
        } else if trimmed.is_empty() || trimmed.starts_with("---") {
            // A line of dashes begins or ends a table.
            if trimmed.starts_with("---") {
                columns = None;
            }
        } else if let (Some(columns), Some(test)) = (&columns, heading.test) {
            let (bytes, value) = columns.read(trimmed).ok_or_else(|| PerftestError::Line {
                line: number + 1,
                found: trimmed.to_owned(),
                columns: columns.names.clone(),
            })?;
            found.measured.push(heading.measured(test, bytes, value));
        } else if columns.is_none() {
            // A line may have two settings, separated by tabs.
            for part in trimmed.split('\t').filter(|part| !part.trim().is_empty()) {
                if let Some((name, value)) = part.split_once(':') {
                    if name.trim() == "Connection type" && value.trim() != "RC" {
                        if let Some(test) = heading.test.take() {
                            let why = "only RC can be replayed";
                            found.passed_over.push((test.program().to_owned(), why));
                        }
                    }
                    heading.take(name.trim(), value.trim());
                }
            }
        }
    }
    match found.measured.is_empty() && found.passed_over.is_empty() {
        true => Err(PerftestError::Nothing),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn banner(title: &str, settings: &str, columns: &str, lines: &str) -> String {
        let dashes = "-".repeat(87);
        format!(
            "{dashes}\n                    {title}\n{settings}\n{dashes}\n local address: LID 0x02 QPN 0x0085 PSN 0x1\n\
             {dashes}\n {columns}\n{lines}\n{dashes}\n"
        )
    }

    const BW: &str =
        "#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]";
    const LAT: &str = "#bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   \
        99% percentile[usec]   99.9% percentile[usec] ";

    #[test]
    fn tables_of_several_runs_are_read() {
        let settings = " Dual-port       : OFF\t\tDevice         : mlx5_0\n Number of qps   : 8\t\tTransport type : IB\n \
            Connection type : RC\t\tUsing SRQ      : OFF\n TX depth        : 64\n CQ Moderation   : 100\n Mtu             : \
            4096[B]\n Max inline data : 16[B]";
        let text = banner(
            "RDMA_Write BW Test",
            settings,
            BW,
            " 2  5000  13.5  13.1  6.87\n 65536 5000 11660.34 11655.18 0.186483",
        ) + &banner(
            "RDMA_Write Latency Test",
            " Connection type : RC",
            LAT,
            " 2 1000 0.92 3.55 0.95 0.96 0.05 1.09 3.55",
        );
        let found = read(&text).unwrap();
        assert!(found.passed_over.is_empty());
        let [small, large, latency] = found.measured[..] else {
            panic!("{found:?}");
        };
        assert_eq!(
            (small.test, small.bytes, small.value),
            (Test::WriteRate, 2, 6.87)
        );
        assert_eq!(
            (small.queue_pairs, small.depth, small.signal_every),
            (8, 64, 100)
        );
        assert_eq!((small.inline_bytes, small.mtu_bytes), (16, Some(4096)));
        assert_eq!((large.bytes, large.value), (65536, 0.186483));
        assert_eq!(
            (latency.test, latency.bytes, latency.value),
            (Test::WriteLatency, 2, 0.95)
        );
        assert_eq!(latency.queue_pairs, 1, "settings are of one run");
    }

    #[test]
    fn bandwidth_is_a_rate_where_there_is_no_column_of_messages() {
        for (unit, value) in [("MB/sec", 1000.0), ("Gb/sec", 8.388608)] {
            let columns = format!("#bytes #iterations BW peak[{unit}] BW average[{unit}]");
            let line = format!("1000 5000 {value} {value}");
            let found = read(&banner(
                "RDMA_Read BW Test",
                " Outstand reads  : 16",
                &columns,
                &line,
            ))
            .unwrap();
            assert!(
                (found.measured[0].value - 1.048576).abs() < 1e-9,
                "{found:?}"
            );
            assert_eq!(found.measured[0].depth, 16);
        }
    }

    #[test]
    fn what_cannot_be_replayed_is_said() {
        let text = banner("Send BW Test", " Connection type : UD", BW, "64 1000 1 1 1")
            + &banner(
                "RDMA_Write BW Test",
                " Connection type : UC",
                BW,
                "64 1000 1 1 1",
            );
        let found = read(&text).unwrap();
        assert!(found.measured.is_empty());
        let titles: Vec<_> = found
            .passed_over
            .iter()
            .map(|(title, _)| title.as_str())
            .collect();
        assert_eq!(titles, ["Send BW Test", "ib_write_bw"]);
    }

    #[test]
    fn a_damaged_line_is_named() {
        let error = read(&banner("RDMA_Write BW Test", "", BW, " 64 1000 1.0 many 2")).map(drop);
        assert!(error.is_ok(), "a column that is not looked at");
        let error = read(&banner("RDMA_Write BW Test", "", BW, " 64 1000 1.0 1.0")).unwrap_err();
        assert!(
            matches!(error, PerftestError::Line { line: 8, .. }),
            "{error}"
        );
        assert_eq!(read("hello"), Err(PerftestError::Nothing));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(text: String, lines in "[ -~\t]{0,60}") {
            let _ = read(&text);
            let _ = read(&banner("RDMA_Write BW Test", &lines, BW, &text));
            let _ = read(&banner("RDMA_Read Latency Test", "", &lines, &text));
        }
    }
}

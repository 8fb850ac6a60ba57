//! Tables of integers and names as Parquet files.
//!
//! All files of a trace are of this kind: columns of 64-bit integers, some of
//! them nullable, and columns of short names from a small vocabulary. A
//! column knows its encoding; zstd goes over all of them. A file's length and
//! CRC-32 are kept outside of it, so that damage is found before anything in
//! it is believed.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{
    Compression, ConvertedType, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel,
};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{
    DeltaBinaryPackedEncoderOptions, EnabledStatistics, WriterProperties, WriterPropertiesPtr,
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use serde::{Deserialize, Serialize};

use super::TraceError;
use super::files;

/// Rows of a row group: what a reader has to hold decoded is bounded by it.
pub const GROUP_ROWS: usize = 1 << 17;
/// Rows handed out at a time.
pub const CHUNK_ROWS: usize = 1 << 14;
/// Largest file that is read; a segment that grows so large is closed before.
const LARGEST: u64 = 1 << 28;
/// zstd level: 1 to 3 differ by some percent in size and twofold in time.
const ZSTD_LEVEL: i32 = 1;

/// How a column is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Integers that follow one another closely: their differences.
    Delta,
    /// Integers of few distinct values.
    Few,
    /// Names of few distinct values.
    Name,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// How it is written.
    pub kind: Kind,
    /// Whether it may be null.
    pub nullable: bool,
}

/// A column that is never null.
pub const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, nullable: false }
}

/// A column that may be null.
pub const fn nullable(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, nullable: true }
}

/// The values of one column: those that are not null, and for a nullable one
/// which rows they belong to.
#[derive(Clone, Debug, Default)]
pub struct Values {
    /// Values present, in order.
    pub ints: Vec<i64>,
    /// Names present, in order, where the column has names.
    pub names: Vec<ByteArray>,
    /// By row, 1 where a value is present; empty for columns never null.
    pub present: Vec<i16>,
}

impl Values {
    /// Appends a value to a column that is never null.
    #[inline]
    pub fn push(&mut self, value: i64) {
        self.ints.push(value);
    }

    /// Appends to a nullable column.
    #[inline]
    pub fn push_if(&mut self, present: bool, value: i64) {
        self.present.push(present.into());
        if present {
            self.ints.push(value);
        }
    }

    /// Appends a name to a column that is never null.
    pub fn push_name(&mut self, name: &ByteArray) {
        self.names.push(name.clone());
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.ints.clear();
        self.names.clear();
        self.present.clear();
    }
}

/// What is known of a file from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Rows.
    pub rows: u64,
    /// Length, bytes.
    pub bytes: u64,
    /// CRC-32 (IEEE) of all bytes.
    pub crc32: u32,
}

/// A file being written.
pub struct TableWriter {
    path: PathBuf,
    writer: SerializedFileWriter<Summed>,
    columns: &'static [Column],
    rows: u64,
}

/// A file that keeps its length and checksum.
struct Summed {
    file: BufWriter<File>,
    bytes: u64,
    crc: crc32fast::Hasher,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        if let Some(written) = bytes.get(..n) {
            self.crc.update(written);
            self.bytes += n as u64;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// How the columns of one kind of table are laid out.
#[derive(Clone, Debug)]
pub struct Layout {
    columns: &'static [Column],
    schema: TypePtr,
    properties: WriterPropertiesPtr,
}

impl Layout {
    /// For tables of these columns.
    ///
    /// # Errors
    ///
    /// Never for the tables of a trace; the library checks names.
    pub fn new(table: &str, columns: &'static [Column]) -> Result<Self, ParquetError> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_created_by(concat!("observer ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_data_page_row_count_limit(CHUNK_ROWS)
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            // Small blocks: one late datagram does not widen many others.
            .set_delta_binary_packed_encoder_options(DeltaBinaryPackedEncoderOptions::try_new(128, 4)?);
        let mut fields = Vec::with_capacity(columns.len());
        for c in columns {
            let repetition = if c.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
            let path = ColumnPath::from(c.name);
            let field = match c.kind {
                Kind::Name => Type::primitive_type_builder(c.name, Physical::BYTE_ARRAY)
                    .with_logical_type(Some(LogicalType::String))
                    .with_converted_type(ConvertedType::UTF8),
                Kind::Delta | Kind::Few => Type::primitive_type_builder(c.name, Physical::INT64),
            };
            fields.push(Arc::new(field.with_repetition(repetition).build()?));
            let few = c.kind != Kind::Delta;
            properties = properties.set_column_dictionary_enabled(path.clone(), few);
            if !few {
                properties = properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
            }
        }
        let schema = Arc::new(Type::group_type_builder(table).with_fields(fields).build()?);
        Ok(Self { columns, schema, properties: Arc::new(properties.build()) })
    }
}

impl TableWriter {
    /// Begins the file `path`, aside.
    ///
    /// # Errors
    ///
    /// [`TraceError::Io`].
    pub fn create(path: &Path, layout: &Layout) -> Result<Self, TraceError> {
        let aside = files::aside(path);
        let file = File::create(&aside).map_err(TraceError::io("create", &aside))?;
        let file = Summed { file: BufWriter::new(file), bytes: 0, crc: crc32fast::Hasher::new() };
        let writer =
            SerializedFileWriter::new(file, Arc::clone(&layout.schema), Arc::clone(&layout.properties))
                .map_err(|e| failed(&aside, e))?;
        Ok(Self { path: path.to_owned(), writer, columns: layout.columns, rows: 0 })
    }

    /// Writes `rows` rows as one row group.
    ///
    /// # Errors
    ///
    /// [`TraceError::Io`].
    pub fn group(&mut self, values: &[Values], rows: usize) -> Result<(), TraceError> {
        if rows == 0 {
            return Ok(());
        }
        self.rows += rows as u64;
        write_group(&mut self.writer, self.columns, values).map_err(|e| failed(&self.path, e))
    }

    /// Ends the file and gives it its name.
    ///
    /// # Errors
    ///
    /// [`TraceError::Io`].
    pub fn finish(self) -> Result<FileInfo, TraceError> {
        let aside = files::aside(&self.path);
        let mut file = self.writer.into_inner().map_err(|e| failed(&aside, e))?;
        file.flush().map_err(TraceError::io("write", &aside))?;
        fs::rename(&aside, &self.path).map_err(TraceError::io("rename", &aside))?;
        Ok(FileInfo { rows: self.rows, bytes: file.bytes, crc32: file.crc.finalize() })
    }
}

fn write_group(
    writer: &mut SerializedFileWriter<Summed>,
    columns: &[Column],
    values: &[Values],
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for (column, values) in columns.iter().zip(values) {
        let Some(mut out) = group.next_column()? else { break };
        let levels = column.nullable.then_some(values.present.as_slice());
        match column.kind {
            Kind::Name => out.typed::<ByteArrayType>().write_batch(&values.names, levels, None)?,
            Kind::Delta | Kind::Few => out.typed::<Int64Type>().write_batch(&values.ints, levels, None)?,
        };
        out.close()?;
    }
    group.close().map(drop)
}

fn failed(path: &Path, e: ParquetError) -> TraceError {
    let source = match e {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(io) => *io,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    };
    TraceError::Io { doing: "write", path: path.to_owned(), source }
}

/// A file being read, a chunk of rows at a time.
pub struct TableReader {
    path: PathBuf,
    file: SerializedFileReader<Bytes>,
    columns: &'static [Column],
    /// Which columns are wanted; the others stay empty.
    wanted: Vec<bool>,
    group: usize,
    readers: Vec<Option<ColumnReader>>,
    left_in_group: usize,
    /// The rows read last.
    pub values: Vec<Values>,
}

impl TableReader {
    /// Opens `path`, which must be as `info` says, with the columns `wanted`.
    ///
    /// # Errors
    ///
    /// [`TraceError::Damaged`] if it is not, or has other columns.
    pub fn open(
        path: &Path,
        info: &FileInfo,
        columns: &'static [Column],
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Self, TraceError> {
        let bytes = files::read_bounded(path, LARGEST)?;
        if bytes.len() as u64 != info.bytes {
            let why = format!("it has {} bytes and was written with {}", bytes.len(), info.bytes);
            return Err(TraceError::damaged(path, why));
        }
        if crc32fast::hash(&bytes) != info.crc32 {
            return Err(TraceError::damaged(path, "its checksum is wrong"));
        }
        let bytes = Bytes::from(bytes);
        let file = guard(path, || SerializedFileReader::new(bytes))?;
        check(path, &file, info, columns)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            columns,
            wanted: columns.iter().map(|c| wanted(c.name)).collect(),
            group: 0,
            readers: Vec::new(),
            left_in_group: 0,
            values: vec![Values::default(); columns.len()],
        })
    }

    /// Reads the next rows, at most `most`, into `values`; how many, 0 at the
    /// end.
    ///
    /// # Errors
    ///
    /// [`TraceError::Damaged`].
    pub fn next(&mut self, most: usize) -> Result<usize, TraceError> {
        while self.left_in_group == 0 {
            if self.group >= self.file.metadata().num_row_groups() {
                return Ok(0);
            }
            self.enter_group()?;
        }
        let rows = most.min(self.left_in_group).min(CHUNK_ROWS);
        let readers = self.readers.iter_mut().zip(&mut self.values).zip(self.columns);
        let path = &self.path;
        for ((reader, values), column) in readers {
            values.clear();
            let Some(reader) = reader else { continue };
            let read = guard(path, || read(reader, values, rows))?;
            if read != rows {
                let why = format!("column {} ends after {read} of {rows} rows", column.name);
                return Err(TraceError::damaged(path, why));
            }
        }
        self.left_in_group -= rows;
        Ok(rows)
    }

    fn enter_group(&mut self) -> Result<(), TraceError> {
        let (file, wanted, number) = (&self.file, &self.wanted, self.group);
        let path = &self.path;
        self.readers = guard(path, || {
            let group = file.get_row_group(number)?;
            wanted
                .iter()
                .enumerate()
                .map(|(i, wanted)| wanted.then(|| group.get_column_reader(i)).transpose())
                .collect::<Result<Vec<_>, _>>()
        })?;
        let rows = self.file.metadata().row_group(number).num_rows();
        self.left_in_group = usize::try_from(rows)
            .ok()
            .filter(|rows| *rows <= GROUP_ROWS)
            .ok_or_else(|| TraceError::damaged(path, format!("a row group of {rows} rows")))?;
        self.group += 1;
        Ok(())
    }
}

fn read(reader: &mut ColumnReader, values: &mut Values, rows: usize) -> Result<usize, ParquetError> {
    let present = &mut values.present;
    match reader {
        ColumnReader::Int64ColumnReader(r) => records(r, rows, present, &mut values.ints),
        ColumnReader::ByteArrayColumnReader(r) => records(r, rows, present, &mut values.names),
        _ => Err(ParquetError::General("a column of another type".to_owned())),
    }
}

fn records<T: parquet::data_type::DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    present: &mut Vec<i16>,
    values: &mut Vec<T::T>,
) -> Result<usize, ParquetError> {
    reader.read_records(rows, Some(present), None, values).map(|(records, ..)| records)
}

/// The library is careful, and its input here is checksummed; still, should it
/// panic on a file, that file is damaged and the program goes on.
fn guard<T>(path: &Path, read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, TraceError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(TraceError::damaged(path, e.to_string())),
        Err(_) => Err(TraceError::damaged(path, "its contents make no sense")),
    }
}

fn check(
    path: &Path,
    file: &SerializedFileReader<Bytes>,
    info: &FileInfo,
    columns: &[Column],
) -> Result<(), TraceError> {
    let metadata = file.metadata().file_metadata();
    let schema = metadata.schema_descr();
    let found: Vec<_> = schema
        .columns()
        .iter()
        .map(|c| (c.name().to_owned(), c.physical_type(), c.max_def_level(), c.max_rep_level()))
        .collect();
    let expected: Vec<_> = columns
        .iter()
        .map(|c| {
            let physical = if c.kind == Kind::Name { Physical::BYTE_ARRAY } else { Physical::INT64 };
            (c.name.to_owned(), physical, i16::from(c.nullable), 0)
        })
        .collect();
    if found != expected {
        let names: Vec<_> = found.iter().map(|(name, ..)| name.as_str()).collect();
        let why = format!("its columns are not this version's: {}", names.join(", "));
        return Err(TraceError::damaged(path, why));
    }
    let groups = file.metadata().row_groups();
    let rows: i64 = groups.iter().map(|g| g.num_rows()).fold(0, i64::saturating_add);
    if u64::try_from(rows) != Ok(info.rows) {
        let why = format!("it says it has {rows} rows and was written with {}", info.rows);
        return Err(TraceError::damaged(path, why));
    }
    Ok(())
}

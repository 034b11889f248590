#include "lockstep/io/idx.hpp"

#include <algorithm>
#include <string>

#include "io/byte_source.hpp"
#include "io/checked_size.hpp"
#include "lockstep/io/mapped_file.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::io {
namespace {

DType dtype_of_code(int code, std::string_view source) {
  switch (code) {
    case 0x08: return DType::u8;
    case 0x0C: return DType::i32;
    case 0x0D: return DType::f32;
    case 0x0E: return DType::f64;
    case 0x09:
    case 0x0B:
      LOCKSTEP_THROW(Unsupported, source, ": element type ", code,
                     " (signed integers of 8 or 16 bits) has no type in lockstep");
    default:
      LOCKSTEP_THROW(CorruptData, source, ": element type ", code,
                     " at offset 2 is none of IDX's; 8, 9, 11, 12, 13 or 14 would be right");
  }
}

struct IdxHeader {
  DType dtype;
  Shape shape;
  std::uint64_t bytes;
};

IdxHeader read_header(ByteSource& in, std::string_view source) {
  std::byte magic[4];
  in.read(magic);
  LOCKSTEP_CHECK(magic[0] == std::byte{0} && magic[1] == std::byte{0}, CorruptData, source,
                 ": not an IDX file: its first two bytes are not 0");
  IdxHeader header{dtype_of_code(std::to_integer<int>(magic[2]), source), {}, 0};
  const int rank = std::to_integer<int>(magic[3]);
  LOCKSTEP_CHECK(rank <= max_rank, Unsupported, source, ": ", rank, " dimensions at offset 3; at ",
                 "most ", max_rank, " are supported");
  for (int i = 0; i < rank; ++i) {
    std::byte word[4];
    in.read(word);
    std::uint64_t extent = 0;
    for (const std::byte byte : word) extent = extent << 8 | std::to_integer<std::uint64_t>(byte);
    header.shape.push_back(static_cast<std::int64_t>(extent));
  }
  const auto bytes = checked_bytes(header.shape, size_of(header.dtype));
  LOCKSTEP_CHECK(bytes && *bytes <= in.most_left(), CorruptData, source, ": shape ", header.shape,
                 " of ", header.dtype, " needs more bytes than the file can hold");
  header.bytes = *bytes;
  return header;
}

// IDX numbers have their highest byte first.
void to_host_order(std::span<std::byte> bytes, std::size_t width) {
  if (width == 1) return;
  for (std::size_t at = 0; at < bytes.size(); at += width)
    std::ranges::reverse(bytes.subspan(at, width));
}

void check_pair(const LabelledImages& pair, const std::string& images, const std::string& labels) {
  LOCKSTEP_CHECK(pair.images.dtype() == DType::u8 && pair.images.dim() == 3, CorruptData, images,
                 ": ", pair.images.dtype(), " ", pair.images.shape(),
                 " are no images; u8 [count, height, width] would be right");
  LOCKSTEP_CHECK(pair.labels.dtype() == DType::u8 && pair.labels.dim() == 1, CorruptData, labels,
                 ": ", pair.labels.dtype(), " ", pair.labels.shape(),
                 " are no labels; u8 [count] would be right");
  LOCKSTEP_CHECK(pair.images.size(0) == pair.labels.size(0), CorruptData, images, " has ",
                 pair.images.size(0), " images, but ", labels, " has ", pair.labels.size(0),
                 " labels; the counts must agree");
  LOCKSTEP_CHECK(pair.images.numel() > 0, CorruptData, images, ": the data set is empty: shape ",
                 pair.images.shape());
}

Tensor widen_labels(const Tensor& narrow, int classes, const std::string& source) {
  Tensor labels = empty(narrow.shape(), {.dtype = DType::i64});
  const auto from = narrow.flat<std::uint8_t>();
  const auto to = labels.flat<std::int64_t>();
  for (std::size_t i = 0; i < from.size(); ++i) {
    LOCKSTEP_CHECK(from[i] < classes, CorruptData, source, ": label ", i, " is ", int{from[i]},
                   "; 0 to ", classes - 1, " would be right");
    to[i] = from[i];
  }
  return labels;
}

}  // namespace

Tensor parse_idx(std::span<const std::byte> contents, std::string_view source) {
  const auto in = open_bytes(contents, source);
  const IdxHeader header = read_header(*in, source);
  Tensor tensor = empty(header.shape, {.dtype = header.dtype});
  const std::span bytes(static_cast<std::byte*>(tensor.data_ptr()),
                        static_cast<std::size_t>(header.bytes));
  in->read(bytes);
  in->finish();
  to_host_order(bytes, size_of(header.dtype));
  return tensor;
}

Tensor read_idx(const std::filesystem::path& path) {
  const MappedFile file(path);
  return parse_idx(file.bytes(), path.string());
}

LabelledImages read_labelled_images(const std::filesystem::path& images,
                                    const std::filesystem::path& labels, int classes) {
  LabelledImages pair{read_idx(images), read_idx(labels)};
  check_pair(pair, images.string(), labels.string());
  pair.labels = widen_labels(pair.labels, classes, labels.string());
  return pair;
}

}  // namespace lockstep::io

#include "io/byte_source.hpp"

#include <algorithm>
#include <cstring>

#include <zlib.h>

#include "lockstep/core/error.hpp"

namespace lockstep::io {
namespace {

class PlainBytes : public ByteSource {
 public:
  PlainBytes(std::span<const std::byte> bytes, std::string_view name)
      : left_(bytes), size_(bytes.size()), name_(name) {}

  void read(std::span<std::byte> out) override {
    LOCKSTEP_CHECK(out.size() <= left_.size(), CorruptData, name_, ": truncated: ", out.size(),
                   " bytes belong at offset ", size_ - left_.size(), ", ", left_.size(), " follow");
    std::copy_n(left_.begin(), out.size(), out.begin());
    left_ = left_.subspan(out.size());
  }
  void finish() override {
    LOCKSTEP_CHECK(left_.empty(), CorruptData, name_, ": ", left_.size(),
                   " trailing bytes at offset ", size_ - left_.size());
  }
  std::uint64_t most_left() const override { return left_.size(); }

 private:
  std::span<const std::byte> left_;
  std::uint64_t size_;
  std::string name_;
};

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
}

class GzipBytes : public ByteSource {
 public:
  GzipBytes(std::span<const std::byte> bytes, std::string_view name) : left_(bytes), name_(name) {
    constexpr int gzip_only = 16 + MAX_WBITS;
    LOCKSTEP_CHECK(::inflateInit2(&stream_, gzip_only) == Z_OK, OutOfMemory, name_,
                   ": no memory for a decompressor");
  }
  ~GzipBytes() override { ::inflateEnd(&stream_); }
  GzipBytes(const GzipBytes&) = delete;
  GzipBytes& operator=(const GzipBytes&) = delete;

  void read(std::span<std::byte> out) override {
    while (!out.empty()) {
      const std::size_t got = inflate_some(out);
      LOCKSTEP_CHECK(got > 0 || !ended_, CorruptData, name_,
                     ": truncated: the compressed data end ", out.size(), " bytes early");
      out = out.subspan(got);
    }
  }
  void finish() override {
    std::byte extra{};
    while (!ended_)
      LOCKSTEP_CHECK(inflate_some({&extra, 1}) == 0, CorruptData, name_,
                     ": trailing bytes in the compressed data");
    LOCKSTEP_CHECK(left_.empty(), CorruptData, name_, ": ", left_.size(),
                   " trailing bytes after the compressed data");
  }
  // Deflate never shrinks data by more than a factor of 1032.
  std::uint64_t most_left() const override { return (left_.size() + 64) * 1032; }

 private:
  // Inflates into `out` as much as one call gives.
  std::size_t inflate_some(std::span<std::byte> out) {
    if (ended_) return 0;
    constexpr std::size_t most = std::size_t{1} << 30;  // zlib counts in unsigned int
    const std::size_t in = std::min(left_.size(), most), room = std::min(out.size(), most);
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(left_.data()));
    stream_.avail_in = static_cast<uInt>(in);
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(room);
    const int status = ::inflate(&stream_, Z_NO_FLUSH);
    left_ = left_.subspan(in - stream_.avail_in);
    const std::size_t got = room - stream_.avail_out;
    if (status == Z_STREAM_END) end_member();
    LOCKSTEP_CHECK(status != Z_BUF_ERROR || got > 0, CorruptData, name_,
                   ": truncated: the compressed data end without their checksum");
    LOCKSTEP_CHECK(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, CorruptData,
                   name_, ": the compressed data are damaged (",
                   stream_.msg ? stream_.msg : "unknown fault", ")");
    return got;
  }

  // A file is a series of members, and may be padded with zeros (RFC 1952, gzip's manual).
  void end_member() {
    const auto next =
        std::ranges::find_if(left_, [](std::byte each) { return each != std::byte{0}; });
    const auto behind_zeros = left_.subspan(static_cast<std::size_t>(next - left_.begin()));
    ended_ = !is_gzip(behind_zeros);
    if (!ended_) ::inflateReset(&stream_);
    if (!ended_ || behind_zeros.empty()) left_ = behind_zeros;
  }

  z_stream stream_{};
  std::span<const std::byte> left_;
  std::string name_;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(std::span<const std::byte> bytes, std::string_view name) {
  if (is_gzip(bytes)) return std::make_unique<GzipBytes>(bytes, name);
  return std::make_unique<PlainBytes>(bytes, name);
}

}  // namespace lockstep::io

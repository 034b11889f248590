#include "checkpoint/part_reader.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "checkpoint/exchange.hpp"
#include "checkpoint/staging.hpp"
#include "checkpoint/stream_copy.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{1} << 20;       // stays in cache for its checksum
constexpr std::size_t thread_count = 4;                         // most of which wait for the disk
constexpr std::uint64_t bytes_ahead = std::uint64_t{32} << 20;  // that the disk is asked for

struct Free {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};
using Pages = std::unique_ptr<std::byte[], Free>;

/// For a chunk that is read directly; none where there is no memory.
Pages pages() noexcept {
  return Pages(
      static_cast<std::byte*>(std::aligned_alloc(page_bytes, chunk_bytes + 2 * page_bytes)));
}

}  // namespace

PartReader::PartReader(std::filesystem::path checkpoint, std::span<const Reading> readings,
                       std::vector<PartOfFile> parts, bool with_headers,
                       std::span<FormerValues> former)
    : checkpoint_(std::move(checkpoint)),
      readings_(readings),
      parts_(std::move(parts)),
      sums_(no_sums()),
      former_(former) {
  std::size_t bytes = 0;
  for (const PartOfFile& part : parts_) {
    bytes += part.to.size();
    left_.resize(std::max(left_.size(), part.round + 1));
    left_[part.round] += part.to.size();
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part.to.size());
  }
  for (std::size_t i = 0; i < readings_.size() && with_headers; ++i)
    for (std::size_t file = 0; file < readings_[i].headers.size(); ++file)
      sums_[i].add(file, 0, std::as_bytes(std::span(readings_[i].headers[file])));
  error_of([this, bytes] {
    while (threads_.size() < std::min(thread_count, bytes / chunk_bytes))
      threads_.emplace_back([this] { run(); });
  });
  if (threads_.empty()) run();
}

PartReader::~PartReader() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  join();
}

void PartReader::wait_for(std::size_t round) {
  std::unique_lock lock(mutex_);
  progressed_.wait(lock, [&] { return stops_ || round >= left_.size() || left_[round] == 0; });
}

std::vector<Contributions> PartReader::sums() {
  join();
  if (failure_) std::rethrow_exception(failure_);
  return sums_;
}

void PartReader::run() noexcept {
  try {
    read_all();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    stops_ = true;
    progressed_.notify_all();
  }
}

void PartReader::read_all() {
  std::vector<Contributions> sums = no_sums();
  const Pages memory = pages();
  for (PartOfFile chunk{}; next(chunk); is_read(chunk)) {
    read(chunk, {memory.get(), memory ? chunk_bytes + 2 * page_bytes : 0});
    sums[chunk.reading].add(chunk.file, chunk.offset, chunk.to);
  }
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < sums.size(); ++i) sums_[i].add(sums[i]);
}

/// @param memory that a chunk read directly may lie in.
void PartReader::read(const PartOfFile& chunk, std::span<std::byte> memory) {
  const FileReader& file = file_of(chunk);
  std::span<const std::byte> bytes;
  if (!memory.empty() && !file.is_cached(chunk.offset, chunk.to.size()))
    bytes = file.read_directly(chunk.offset, chunk.to.size(), memory);
  if (bytes.empty()) read_ahead();
  if (chunk.former) keep_former(chunk);
  if (bytes.empty())
    file.read(chunk.offset, chunk.to);
  else
    std::memcpy(chunk.to.data(), bytes.data(), bytes.size());
}

/// Where the page cache is the way, the disk is asked for more than is read now.
void PartReader::read_ahead() {
  for (PartOfFile part{}; next_ahead(part);)
    if (const FileReader& file = file_of(part); !file.reads_directly())
      file.read_ahead(part.offset, part.to.size());
}

/// Takes the next bytes that nobody has begun to read; none once all are, or it stops.
bool PartReader::next(PartOfFile& chunk) {
  const std::lock_guard lock(mutex_);
  while (first_ < parts_.size() && parts_[first_].to.empty()) ++first_;
  if (stops_ || first_ == parts_.size()) return false;
  PartOfFile& part = parts_[first_];
  chunk = part;
  chunk.to = part.to.first(std::min(part.to.size(), chunk_bytes - part.offset % page_bytes));
  part.to = part.to.subspan(chunk.to.size());
  part.offset += chunk.to.size();
  if (part.former) part.former += chunk.to.size();
  begun_ += chunk.to.size();
  return true;
}

/// Takes the next bytes that the disk shall be asked for, while few are on their way.
bool PartReader::next_ahead(PartOfFile& part) {
  const std::lock_guard lock(mutex_);
  asked_ = std::max(asked_, begun_);
  while (ahead_ < parts_.size() && ends_[ahead_] <= asked_) ++ahead_;
  if (ahead_ == parts_.size() || asked_ >= begun_ + bytes_ahead) return false;
  part = parts_[ahead_];
  const std::uint64_t rest = ends_[ahead_] - asked_;
  part.offset += part.to.size() - rest;
  part.to = part.to.last(rest).first(std::min<std::uint64_t>(rest, chunk_bytes));
  asked_ += part.to.size();
  return true;
}

void PartReader::keep_former(const PartOfFile& chunk) {
  stream_copy({chunk.former, chunk.to.size()}, chunk.to.data());
  const std::lock_guard lock(mutex_);
  former_[chunk.reading].add(chunk.to, chunk.former);
}

void PartReader::is_read(const PartOfFile& chunk) {
  const std::lock_guard lock(mutex_);
  left_[chunk.round] -= chunk.to.size();
  if (left_[chunk.round] == 0) progressed_.notify_all();
}

const FileReader& PartReader::file_of(const PartOfFile& part) {
  const std::lock_guard lock(mutex_);
  const std::string& name = readings_[part.reading].contents.files[part.file].name;
  return files_.try_emplace({part.reading, part.file}, checkpoint_ / name).first->second;
}

std::vector<Contributions> PartReader::no_sums() const {
  std::vector<Contributions> sums;
  for (const Reading& reading : readings_) sums.emplace_back(sizes_of(reading.contents));
  return sums;
}

void PartReader::join() {
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

}  // namespace lockstep::checkpoint

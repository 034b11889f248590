#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/operation.hpp"

namespace lockstep::comm::host {

/// What goes up a tree of ranks, combined on the way, and what the root hands down to all. Ranks
/// are ranges [first, end): a subtree's.
class TreeData {
 public:
  virtual ~TreeData() = default;
  /// Bytes that come from a subtree.
  virtual std::int64_t bytes_from(int first, int end) const = 0;
  /// Bytes of the result.
  virtual std::int64_t result_bytes() const = 0;
  /// Writes this rank's own part.
  virtual void begin(std::byte* partial) const = 0;
  /// Takes in what came from a child's subtree, in the order of ranks.
  virtual void take(std::byte* partial, const std::byte* from, int first, int end) const = 0;
  /// On the root: the result of all parts, which it uses up.
  virtual void finish(std::byte* partial, std::byte* result) const = 0;
};

/// Nothing: ranks only agree.
class NoData final : public TreeData {
 public:
  std::int64_t bytes_from(int, int) const override { return 0; }
  std::int64_t result_bytes() const override { return 0; }
  void begin(std::byte*) const override {}
  void take(std::byte*, const std::byte*, int, int) const override {}
  void finish(std::byte*, std::byte*) const override {}
};

/// A reduction, with the bits of `fold`.
class FoldData final : public TreeData {
 public:
  FoldData(const Operation& operation, int ranks) : operation_(operation), ranks_(ranks) {}
  std::int64_t bytes_from(int, int) const override;
  std::int64_t result_bytes() const override;
  void begin(std::byte* partial) const override;
  void take(std::byte* partial, const std::byte* from, int first, int end) const override;
  void finish(std::byte* partial, std::byte* result) const override;

 private:
  const Operation& operation_;
  int ranks_;
};

/// The parts of all ranks, one behind the other.
class GatherData final : public TreeData {
 public:
  /// @param begins of each rank's part, in bytes, and the end of the last one.
  GatherData(int rank, const std::byte* own, std::vector<std::int64_t> begins)
      : rank_(rank), own_(own), begins_(std::move(begins)) {}
  std::int64_t bytes_from(int first, int end) const override;
  std::int64_t result_bytes() const override { return begins_.back(); }
  void begin(std::byte* partial) const override;
  void take(std::byte* partial, const std::byte* from, int first, int end) const override;
  void finish(std::byte* partial, std::byte* result) const override;

 private:
  std::int64_t begin_of(int rank) const { return begins_[static_cast<std::size_t>(rank)]; }

  int rank_;
  const std::byte* own_;
  std::vector<std::int64_t> begins_;
};

/// One rank's data, to all.
class RootData final : public TreeData {
 public:
  RootData(int rank, int root, const std::byte* own, std::int64_t bytes)
      : rank_(rank), root_(root), own_(own), bytes_(bytes) {}
  std::int64_t bytes_from(int first, int end) const override {
    return first <= root_ && root_ < end ? bytes_ : 0;
  }
  std::int64_t result_bytes() const override { return bytes_; }
  void begin(std::byte* partial) const override;
  void take(std::byte* partial, const std::byte* from, int first, int end) const override;
  void finish(std::byte* partial, std::byte* result) const override;

 private:
  int rank_, root_;
  const std::byte* own_;
  std::int64_t bytes_;
};

}  // namespace lockstep::comm::host

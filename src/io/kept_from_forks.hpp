#pragma once

namespace lockstep::io {

/// A descriptor that forked children do not get: in them it is /dev/null. A lock of this process
/// would else last as long as a child that outlives it. `fork` alone does this, not `vfork`.
class KeptFromForks {
 public:
  KeptFromForks() = default;
  KeptFromForks(const KeptFromForks&) = delete;
  KeptFromForks& operator=(const KeptFromForks&) = delete;
  ~KeptFromForks();
  /// @param descriptor stays open for as long as this lives. More of them than some dozens, in one
  /// process, are not kept from anybody.
  void keep(int descriptor);

 private:
  int place_ = -1, descriptor_ = -1;
};

}  // namespace lockstep::io

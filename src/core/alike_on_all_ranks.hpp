#pragma once

namespace lockstep {

/// For its scope the calling thread computes what every rank computes for itself and must get
/// alike, as an optimizer's products of averaged gradients: no kernel is chosen by its time, and no
/// product's sums are split by the number of threads, which are others on each rank.
class AlikeOnAllRanks {
 public:
  AlikeOnAllRanks() noexcept { ++scopes; }
  AlikeOnAllRanks(const AlikeOnAllRanks&) = delete;
  AlikeOnAllRanks& operator=(const AlikeOnAllRanks&) = delete;
  ~AlikeOnAllRanks() { --scopes; }

  static bool is_active() noexcept { return scopes > 0; }

 private:
  static inline thread_local int scopes = 0;
};

}  // namespace lockstep

// Guards that end with the statement that makes them: each is a warning, which this file is
// compiled for.
#include "lockstep/amp/autocast.hpp"
#include "lockstep/autograd/grad_mode.hpp"

void make_temporaries() {
  lockstep::NoGradGuard();
  lockstep::amp::Autocast(lockstep::DType::bf16, lockstep::cpu);
}

import os

# some CPUs advertise AMX that they cannot use: bf16 would die with SIGILL
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

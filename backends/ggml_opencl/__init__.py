"""OpenCL backend: any OpenCL 1.2 device, through pyopencl; PoCL runs it without a GPU."""

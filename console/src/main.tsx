import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { Refused } from './api/client';
import { router } from './app/router';
import { applyTheme } from './app/settings';
import './styles/tokens.css';
import './styles/layout.css';
import './styles/controls.css';
import './styles/screens.css';
import './styles/messages.css';
import './styles/queues.css';

applyTheme();

const client = new QueryClient({
  defaultOptions: {
    queries: {
      // A refusal is an answer; only what may heal by itself is asked again.
      retry: (failures, error) => failures < 2 && !(error instanceof Refused && !error.problem.retryable),
      retryDelay: (attempt) => Math.min(400 * 2 ** attempt, 3000),
      networkMode: 'always',
    },
    mutations: { networkMode: 'always' },
  },
});

const root = document.getElementById('root');
if (!root) throw new Error('index.html has no #root');
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
);
